# Instruction counts against the budgets, by callgrind (docs/performance.md).
test_helpers += %D%/ledger
%C%_ledger_SOURCES = %D%/ledger.c
%C%_ledger_LDADD   = backends/ledger/libledger.la
if BACKEND_RDMA
if HAVE_CHECK
test_helpers += %D%/slice
%C%_slice_SOURCES  = %D%/slice.c %D%/callgrind.h $(softverbs_rig)
%C%_slice_CPPFLAGS = $(AM_CPPFLAGS) $(RDMA_CFLAGS)
%C%_slice_LDADD    = $(rdma_kit) \
                     tests/softverbs/libsoftverbs.la $(test_ldadd)
test_helpers += %D%/pairs
%C%_pairs_SOURCES  = %D%/pairs.c %D%/callgrind.h %D%/window.h $(softverbs_rig)
%C%_pairs_CPPFLAGS = $(AM_CPPFLAGS) $(RDMA_CFLAGS)
%C%_pairs_LDADD    = $(rdma_kit) \
                     tests/softverbs/libsoftverbs.la $(test_ldadd)
# Through libescrow; rdma.so, which is loaded, finds the double among the program's libraries.
test_helpers += %D%/hosted
%C%_hosted_SOURCES  = %D%/hosted.c %D%/callgrind.h $(softverbs_rig)
%C%_hosted_CPPFLAGS = $(AM_CPPFLAGS) $(RDMA_CFLAGS)
%C%_hosted_LDFLAGS  = -Wl,--no-as-needed
%C%_hosted_LDADD    = tests/softverbs/libsoftverbs.la $(host_test_ldadd)
endif
endif
# A grant and its revocation beside a bare pair, a WRITE there and one back, and single ops beside bare ones, on the real
# libraries or what is loaded ahead of them.
if BACKEND_RDMA
if HAVE_CHECK
test_helpers += %D%/grant
%C%_grant_SOURCES  = %D%/grant.c %D%/clock.h %D%/need.h %D%/rail.h %D%/window.h tests/softroce/link.c tests/softroce/link.h
%C%_grant_CPPFLAGS = $(AM_CPPFLAGS) $(RDMA_CFLAGS)
%C%_grant_LDADD    = $(catalogue_real_ldadd)
test_helpers += %D%/pong
%C%_pong_SOURCES  = %D%/pong.c %D%/clock.h %D%/need.h %D%/rail.h tests/softroce/link.c tests/softroce/link.h
%C%_pong_CPPFLAGS = $(AM_CPPFLAGS) $(RDMA_CFLAGS)
%C%_pong_LDADD    = $(catalogue_real_ldadd)
test_helpers += %D%/lone
%C%_lone_SOURCES  = %D%/lone.c %D%/clock.h %D%/need.h %D%/rail.h tests/softroce/link.c tests/softroce/link.h
%C%_lone_CPPFLAGS = $(AM_CPPFLAGS) $(RDMA_CFLAGS)
%C%_lone_LDADD    = $(catalogue_real_ldadd)
endif
endif
test_scripts += %D%/test-instructions.sh
EXTRA_DIST   += %D%/instructions %D%/instructions.tsv

# The bare verbs of `escrow bench --baseline raw`; a program, so that the tool names no verb.
if BACKEND_RDMA
pkglibexec_PROGRAMS += %D%/escrow-bench-raw
%C%_escrow_bench_raw_SOURCES  = %D%/raw.c tools/bench-load.c tools/bench-load.h tools/bench-stat.c tools/bench.h \
	tools/demo-channel.c tools/demo.h tools/tool.h
%C%_escrow_bench_raw_CPPFLAGS = $(AM_CPPFLAGS) $(GLIB_CFLAGS) $(RDMA_CFLAGS)
%C%_escrow_bench_raw_LDADD    = $(GLIB_LIBS) $(RDMA_LIBS)
endif

# The same load by libfabric.
if HAVE_LIBFABRIC
test_helpers += %D%/fabric
%C%_fabric_SOURCES  = %D%/fabric.c %D%/clock.h
%C%_fabric_CPPFLAGS = $(AM_CPPFLAGS) $(LIBFABRIC_CFLAGS)
%C%_fabric_LDADD    = $(LIBFABRIC_LIBS)
endif

# The standing comparison, ./dev bench.
test_scripts += %D%/test-comparison.sh
EXTRA_DIST   += %D%/run %D%/in-guest %D%/summary
