# The mock: the engine over a device in memory. The device is a library of its own, for its test.
noinst_LTLIBRARIES += %D%/libmock.la
%C%_libmock_la_SOURCES = %D%/conn.c %D%/fabric.c %D%/fault.c %D%/lane.c %D%/link.c %D%/meet.c \
                         %D%/memory.c %D%/mock.h %D%/native.c %D%/news.c %D%/packet.c \
                         %D%/packet.h %D%/run.c %D%/socket.c

backend_LTLIBRARIES += backends/mock.la
backends_mock_la_SOURCES = %D%/entry.c
backends_mock_la_LDFLAGS = $(escrow_module_ldflags)
backends_mock_la_LIBADD  = %D%/libmock.la backends/engine/libengine.la

# The mutants, for the kill matrix (make mutants): each the mock with one clause broken.
mutant_sources = %D%/mutants/ends.h %D%/mutants/event.c %D%/mutants/grant.c %D%/mutants/host.c \
                 %D%/mutants/layout.c %D%/mutants/life.c %D%/mutants/mutant.h %D%/mutants/object.c \
                 %D%/mutants/op.c %D%/mutants/peer.c %D%/mutants/stuck.c %D%/mutants/thread.c %D%/mutants/build
EXTRA_DIST += $(mutant_sources) %D%/mutants/kill-matrix.sh %D%/mutants/off-diagonal.tsv
test_scripts += %D%/mutants/test-mutants.sh
mutant_env = CC='$(CC)' top_srcdir='$(abs_top_srcdir)' JOBS=2 \
    MUTANT_CFLAGS='$(DEFS) $(DEFAULT_INCLUDES) -I$(top_srcdir)/abi -I$(top_srcdir) $(CPPFLAGS) $(WARN_CFLAGS) $(SAN_CFLAGS) -O1' \
    MUTANT_LIBS='%D%/.libs/libmock.a backends/engine/.libs/libengine.a -Wl,-S -lpthread $(SAN_CFLAGS)'
mutants: %D%/mutants.stamp
.PHONY: mutants
%D%/mutants.stamp: $(mutant_sources) %D%/libmock.la backends/engine/libengine.la
	$(AM_V_GEN)$(mutant_env) bash $(srcdir)/%D%/mutants/build %D%/mutants/.libs && touch $@
CLEANFILES += %D%/mutants.stamp %D%/mutants/.libs/*.so
