test_scripts += %D%/test-escrow.sh %D%/test-supervise.sh %D%/test-bench.sh %D%/test-trouble.sh

# What escrow bench --check must find.
check_LTLIBRARIES += %D%/spoiled.la
%C%_spoiled_la_SOURCES = %D%/spoiled.c
%C%_spoiled_la_LDFLAGS = $(escrow_check_module_ldflags)
%C%_spoiled_la_LIBADD  = backends/mock/libmock.la backends/engine/libengine.la

# Preloaded: a machine that gives escrow no process.
check_LTLIBRARIES += %D%/forkless.la
%C%_forkless_la_SOURCES = %D%/forkless.c
%C%_forkless_la_LDFLAGS = $(AM_LDFLAGS) -module -avoid-version -shared -rpath /nowhere
