# The gates: native teardown failures on real verbs or softverbs, and the observer that makes them.
if BACKEND_RDMA
check_LTLIBRARIES += %D%/libobserver.la
%C%_libobserver_la_SOURCES  = %D%/observer.c %D%/observer.h %D%/observer-int.h %D%/observer-fault.c %D%/observer-list.c tests/lib/forbid.h
%C%_libobserver_la_CPPFLAGS = $(AM_CPPFLAGS) $(RDMA_CFLAGS) -D_GNU_SOURCE
%C%_libobserver_la_CFLAGS   = $(AM_CFLAGS) -fvisibility=hidden
# A module of the tests, with -rpath so that it is shared though nothing installs it.
%C%_libobserver_la_LDFLAGS  = $(AM_LDFLAGS) -avoid-version -shared -rpath /nowhere
%C%_libobserver_la_LIBADD   = $(RDMA_LIBS) -lpthread

if HAVE_CHECK
test_helpers += %D%/gate
%C%_gate_SOURCES  = %D%/gate.c %D%/gate.h %D%/case.c %D%/doctor.c %D%/end.c %D%/facts.c %D%/fresh.c %D%/judge.c %D%/judge.h %D%/judge-objects.c %D%/replace.c %D%/report.c %D%/report-text.c \
                    %D%/roles.c tests/hardware/sides.c tests/hardware/sides.h %D%/teardown.c tools/demo-bytes.c tools/demo-channel.c tools/demo-tcp.c tools/json.c tools/names.c
%C%_gate_CPPFLAGS = $(AM_CPPFLAGS) $(GLIB_CFLAGS) $(JSON_CFLAGS)
%C%_gate_LDADD    = plugin/libescrow.la backends/engine/libengine.la %D%/libobserver.la $(GLIB_LIBS) $(JSON_LIBS)
endif
endif
EXTRA_DIST += %D%/run %D%/installed-host.c
installcheck_scripts += %D%/test-installed.sh
