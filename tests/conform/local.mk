# The conformance suite: the program that runs one case on one object. `escrow conform` (tools/) is
# its parent. A new case is a line in the table at the end of its file; a new file a line here, in
# case.h and in child.c. Plain C and libdl only.
pkglibexec_PROGRAMS += %D%/escrow-conform-child
%C%_escrow_conform_child_SOURCES = %D%/child.c %D%/case.h \
	%D%/ambient.c %D%/ambient.h %D%/book.c %D%/book.h %D%/call.c %D%/engine.c %D%/engine.h %D%/fault.c %D%/fault.h \
	%D%/guard.c %D%/guard.h %D%/host.c %D%/host.h %D%/pair.c %D%/pair.h \
	%D%/patience.c %D%/patience.h %D%/process.c %D%/process.h %D%/reach.c %D%/reach.h %D%/shape.c %D%/shape.h %D%/subject.c %D%/subject.h %D%/trail.c %D%/trail.h \
	%D%/verdict.c %D%/verdict.h %D%/watch.c tests/lib/leave.h \
	%D%/args.c %D%/breakage.c %D%/close.c %D%/drain.c %D%/entry.c %D%/event.c %D%/flow.c \
	%D%/fork.c %D%/fuzz.c %D%/grant.c %D%/handle.c %D%/layout.c %D%/ledger.c %D%/life.c \
	%D%/message.c %D%/oom.c %D%/op.c %D%/peer.c %D%/perf.c %D%/quarantine.c %D%/region.c \
	%D%/remote.c %D%/state.c %D%/swap.c %D%/thread.c
nodist_%C%_escrow_conform_child_SOURCES = %D%/states.inc
# The watched functions must be in the dynamic table, see watch.c.
%C%_escrow_conform_child_LDFLAGS = $(AM_LDFLAGS) -rdynamic

BUILT_SOURCES += %D%/states.inc
CLEANFILES    += %D%/states.inc
EXTRA_DIST    += %D%/states.awk
%D%/states.inc: $(top_srcdir)/abi/states.tsv $(top_srcdir)/%D%/states.awk
	$(AM_V_GEN)$(MKDIR_P) $(@D) && $(AWK) -f $(top_srcdir)/%D%/states.awk \
		$(top_srcdir)/abi/states.tsv >$@.tmp && mv $@.tmp $@
%D%/state.$(OBJEXT): %D%/states.inc

if HAVE_CHECK
test_programs += %D%/test-kit
%C%_test_kit_SOURCES = %D%/test-kit.c %D%/ambient.c %D%/ambient.h %D%/patience.c %D%/patience.h \
	%D%/verdict.c %D%/verdict.h
%C%_test_kit_LDADD   = $(test_ldadd)
endif
EXTRA_DIST   += %D%/compare %D%/differences
test_scripts += %D%/test-clauses.sh %D%/test-runner.sh %D%/test-compare.sh %D%/test-matrix.sh %D%/test-mock.sh %D%/test-mock-rail.sh
installcheck_scripts += %D%/test-installed.sh
