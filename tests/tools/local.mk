test_scripts += %D%/test-escrow.sh %D%/test-supervise.sh %D%/test-bench.sh

# What escrow bench --check must find.
check_LTLIBRARIES += %D%/spoiled.la
%C%_spoiled_la_SOURCES = %D%/spoiled.c
%C%_spoiled_la_LDFLAGS = $(escrow_check_module_ldflags)
%C%_spoiled_la_LIBADD  = backends/mock/libmock.la backends/engine/libengine.la
