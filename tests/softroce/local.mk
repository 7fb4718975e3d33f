# Real kernel verbs in a guest.
EXTRA_DIST += %D%/run %D%/guest.sh %D%/init %D%/guest-run %D%/complaints.awk \
	%D%/known-warnings %D%/conform-waivers %D%/test-guest.sh %D%/test-two-nodes.sh %D%/far %D%/each

# What is built here runs in the guest, not under make check.
if BACKEND_RDMA
if HAVE_CHECK
test_helpers += %D%/facts %D%/facts-failure
softroce_sources = %D%/link.c %D%/link.h %D%/scene.c %D%/scene.h
%C%_facts_SOURCES          = %D%/facts.c $(softroce_sources)
%C%_facts_CPPFLAGS         = $(AM_CPPFLAGS) $(RDMA_CFLAGS)
%C%_facts_LDADD            = $(RDMA_LIBS) $(test_ldadd)
%C%_facts_failure_SOURCES  = %D%/facts-failure.c tests/lib/forbid.h $(softroce_sources)
%C%_facts_failure_CPPFLAGS = $(AM_CPPFLAGS) $(RDMA_CFLAGS)
%C%_facts_failure_LDADD    = -lpthread $(RDMA_LIBS) $(test_ldadd)
endif
endif
