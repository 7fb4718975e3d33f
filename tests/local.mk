# Everything prints TAP. A unit test is a file and three lines in tests/unit/local.mk, a script test
# a file and one line (test_scripts); see tests/lib/testing.h.
TEST_EXTENSIONS = .sh
LOG_DRIVER      = env AM_TAP_AWK='$(AWK)' $(SHELL) $(top_srcdir)/build-aux/tap-driver.sh
SH_LOG_DRIVER   = $(LOG_DRIVER)
SH_LOG_COMPILER = bash
# G_SLICE: GLib before 2.76 hides leaks from memcheck and from ASan without it, and the value
# debug-blocks hides them again (measured). The rest says where things are in the build.
AM_TESTS_ENVIRONMENT = \
	G_SLICE=always-malloc; export G_SLICE; \
	G_DEBUG=fatal-criticals; export G_DEBUG; \
	ESCROW_KEEP_BACKENDS=1; export ESCROW_KEEP_BACKENDS; \
	ESCROW_BACKEND_PATH='$(abs_top_builddir)/backends/.libs'; export ESCROW_BACKEND_PATH; \
	ESCROW_PROBE='$(abs_top_builddir)/plugin/escrow-probe'; export ESCROW_PROBE; \
	ESCROW_BENCH_RAW='$(abs_top_builddir)/tests/bench/escrow-bench-raw'; export ESCROW_BENCH_RAW; \
	ESCROW_CONFORM_CHILD='$(abs_top_builddir)/tests/conform/escrow-conform-child'; export ESCROW_CONFORM_CHILD; \
	TEST_MODULE_PATH='$(abs_top_builddir)/tests/.libs'; export TEST_MODULE_PATH; \
	top_builddir='$(abs_top_builddir)'; export top_builddir; \
	top_srcdir='$(abs_top_srcdir)'; export top_srcdir; \
	CC='$(CC)'; export CC; HEADER_CXX='$(HEADER_CXX)'; export HEADER_CXX; \
	NM='$(NM)'; export NM; READELF='$(READELF)'; export READELF; \
	SANITIZERS='$(SANITIZERS)'; export SANITIZERS; \
	ASAN_OPTIONS=fast_unwind_on_malloc=0:$$ASAN_OPTIONS; export ASAN_OPTIONS;

include %D%/softverbs/local.mk
if HAVE_CHECK
# Unit tests are linked with $(test_ldadd); what they test is listed before it.
check_LTLIBRARIES += %D%/lib/libtesting.la
%C%_lib_libtesting_la_SOURCES = %D%/lib/testing.c %D%/lib/testing.h
%C%_lib_libtesting_la_CFLAGS  = $(AM_CFLAGS) $(CHECK_CFLAGS)
%C%_lib_libtesting_la_LIBADD  = $(CHECK_LIBS)
test_ldadd = tests/lib/libtesting.la
include %D%/unit/local.mk
test_programs += %D%/lib/test-hang
%C%_lib_test_hang_SOURCES  = %D%/lib/test-hang.c %D%/lib/hang.c %D%/lib/hang.h
%C%_lib_test_hang_CPPFLAGS = $(AM_CPPFLAGS) -D_GNU_SOURCE -DTOP_SRCDIR='"$(abs_top_srcdir)"'
%C%_lib_test_hang_LDADD    = $(test_ldadd)
endif
EXTRA_DIST   += %D%/lib/stacks %D%/lib/ports.sh %D%/lib/say.sh
test_scripts += %D%/lib/test-house-rules.sh %D%/lib/test-stages.sh %D%/lib/test-stacks.sh %D%/lib/test-ports.sh

# make catalogue-page: docs/catalogue.md, of the table, the tests and where they run.
test_scripts += %D%/lib/test-catalogue.sh
EXTRA_DIST   += %D%/catalogue %D%/catalogue.tsv %D%/catalogue.head docs/catalogue.md
catalogue-page: all
	ESCROW_CONFORM_CHILD='$(abs_top_builddir)/tests/conform/escrow-conform-child' tools/escrow conform --list | \
	    (cd $(srcdir) && perl %D%/catalogue page >docs/catalogue.md.tmp && mv docs/catalogue.md.tmp docs/catalogue.md)
include %D%/abi/local.mk
include %D%/docs/local.mk
include %D%/tools/local.mk
include %D%/conform/local.mk
include %D%/softroce/local.mk
include %D%/hardware/local.mk
include %D%/models/local.mk
include %D%/bench/local.mk
include %D%/gates/local.mk
include %D%/simulate/local.mk
include %D%/planted/local.mk
include %D%/coverage/local.mk

check_PROGRAMS     = $(test_waiting) $(test_programs) $(test_helpers)
dist_check_SCRIPTS = $(test_scripts)
# What waits for most of its time comes first and runs beside the rest; then the scripts, some of which are long, and
# softverbs before the unit tests: so no long one runs alone at the end.
TESTS              = $(test_waiting) $(test_scripts) $(test_programs)
EXTRA_DIST        += $(installcheck_scripts)

# make check-tarball: distcheck with those tests that could miss something in the tarball. What the others say does not
# depend on it; nor on the optimiser.
check-tarball:
	$(MAKE) distcheck DISTCHECK_CONFIGURE_FLAGS='CFLAGS=-O0' TESTS='$(filter-out %D%/models/% %D%/bench/% %D%/simulate/% %D%/hardware/% %D%/softverbs/% \
	    %D%/tools/test-bench.sh %D%/tools/test-trouble.sh %D%/conform/test-mock.sh %D%/conform/test-mock-rail.sh,$(test_scripts))'

# make check-threads: for a build with --enable-tsan.
check-threads: all-am $(test_threaded) $(check_LTLIBRARIES)
	$(MAKE) check-TESTS \
	    TESTS='$(filter $(test_waiting),$(test_threaded)) $(filter-out $(test_waiting),$(test_threaded)) %D%/conform/threads.sh'
EXTRA_DIST += %D%/conform/threads.sh %D%/conform/tsan.supp

# make check-programs: the test programs without the scripts.
check-programs: all-am $(check_PROGRAMS) $(check_LTLIBRARIES)
	$(MAKE) check-TESTS TESTS='$(test_waiting) $(test_programs)'

# make check-valgrind: the programs, not the scripts; and some cases of the conformance suite. Not
# AX_VALGRIND_CHECK: it sets G_SLICE=debug-blocks, which makes every leak reachable (measured).
memcheck = valgrind --quiet --error-exitcode=99 --leak-check=full \
           --show-leak-kinds=definite,indirect --errors-for-leak-kinds=definite,indirect \
           --num-callers=30 --suppressions=$(abs_top_srcdir)/%D%/valgrind.supp
EXTRA_DIST += %D%/valgrind.supp %D%/lsan.supp %D%/conform/memcheck.sh
# Threads that spin for each other starve under memcheck, which runs one at a time; these have asan and tsan. The
# soak looks at the memory of its own process.
# Of the fault catalogue one program is enough of a sample, and of the RDMA backend on softverbs test-backend, test-kill
# and test-meet: the others wait for retries, or do the same many times, and take minutes; so do those of the engine
# that wear windows, or look at a hundred thousand grants.
memcheck_not = %D%/unit/test-custody %D%/unit/test-swap-data %D%/softverbs/test-soak \
    %D%/softverbs/catalogue-requester %D%/softverbs/catalogue-owner %D%/softverbs/catalogue-fabric \
    %D%/softverbs/test-returns %D%/softverbs/test-rails %D%/softverbs/test-hostile %D%/softverbs/test-quota \
    %D%/softverbs/test-refusals %D%/softverbs/test-misuse %D%/softverbs/test-many-hands %D%/unit/test-engine-renew %D%/unit/test-engine-windows \
    %D%/unit/test-engine-many
# Each of these takes more than half a minute of the few that memcheck should take; address sanitizer has them every time.
memcheck_full = %D%/unit/test-engine-silence %D%/unit/test-elf-hostile %D%/unit/test-engine-hostile \
    %D%/unit/test-engine-plan %D%/unit/test-engine-offers %D%/unit/test-engine-grants %D%/unit/test-ledger-threads \
    %D%/softverbs/test-path %D%/softverbs/catalogue-device %D%/softverbs/test-dmabuf
check-valgrind: all-am $(check_PROGRAMS) $(check_LTLIBRARIES)
	MEMCHECK='$(memcheck)' CK_TIMEOUT_MULTIPLIER=20 $(MAKE) check-TESTS \
	    TESTS='$(filter-out $(memcheck_not) $(if $(FULL),,$(memcheck_full)),$(test_waiting) $(test_programs)) %D%/conform/memcheck.sh' \
	    LOG_COMPILER='$(LIBTOOL) --mode=execute $(memcheck)'

clean-local:
	-rm -f coverage.json coverage-summary.json coverage.log coverage.err
	-find . '(' -name '*.gcda' -o -name '*.gcno' ')' -exec rm {} +

# make installcheck: what was installed works where it was installed.
installcheck-local:
	@for t in $(installcheck_scripts); do \
	    echo "installcheck: $$t"; \
	    DESTDIR='$(DESTDIR)' bindir='$(DESTDIR)$(bindir)' libdir='$(DESTDIR)$(libdir)' \
	    backenddir='$(DESTDIR)$(backenddir)' pkglibexecdir='$(DESTDIR)$(pkglibexecdir)' \
	    datadir='$(DESTDIR)$(datadir)' includedir='$(DESTDIR)$(includedir)' prefix='$(prefix)' \
	    top_builddir='$(abs_top_builddir)' top_srcdir='$(abs_top_srcdir)' CC='$(CC)' \
	    G_SLICE=always-malloc bash $(abs_top_srcdir)/$$t || exit 1; \
	done

# make lint: what a reviewer should not have to say.
EXTRA_DIST += %D%/lint %D%/.clang-tidy %D%/house-rules %D%/lib/stages.sh dev .ci/run
lint:
	cd $(srcdir) && BUILDDIR='$(abs_top_builddir)' CPPFLAGS='-I$(abs_top_builddir) $(DEFS) -Iabi $(GLIB_CFLAGS) $(JSON_CFLAGS) $(CHECK_CFLAGS) $(RDMA_CFLAGS) -DPKGLIBEXECDIR="x" -DBACKENDDIR="x"' bash %D%/lint
.PHONY: catalogue-page check-tarball check-threads check-programs check-valgrind lint
