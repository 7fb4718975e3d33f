# The verbs double: libibverbs and librdmacm in user space, by symbol precedence (docs/softverbs.md). It
# is installed beside the backends (libdir/escrow), so that a demo without a device can use it.
if BACKEND_RDMA
pkglib_LTLIBRARIES = %D%/libsoftverbs.la
%C%_libsoftverbs_la_SOURCES = %D%/adversary.c %D%/adversary.h %D%/base.c %D%/base.h %D%/batch.c \
                              %D%/channel.c %D%/cm.h %D%/cmconn.c %D%/cmep.c %D%/cmevent.c \
                              %D%/cmid.c %D%/cmwire.c %D%/config.c %D%/custody.c %D%/custody.h %D%/context.c %D%/cq.c \
                              %D%/cq.h %D%/delay.c %D%/delay.h %D%/device.c %D%/device.h %D%/evq.c %D%/evq.h %D%/fabric.c \
                              %D%/fabric.h %D%/held.c %D%/held.h %D%/link.c %D%/link.h %D%/log.c %D%/log.h %D%/missing.c \
                              %D%/mr.c %D%/mr.h %D%/mw.c %D%/names.c %D%/nic.c %D%/nic.h \
                              %D%/payload.c %D%/payload.h %D%/post.c %D%/qp.c %D%/qp.h \
                              %D%/qpstate.c %D%/registry.c %D%/registry.h %D%/requester.c \
                              %D%/responder.c %D%/script.c %D%/script.h %D%/softverbs.h %D%/tables.c %D%/turns.c %D%/turns.h %D%/wire.h
%C%_libsoftverbs_la_CPPFLAGS = $(AM_CPPFLAGS) $(RDMA_CFLAGS) -D_GNU_SOURCE
%C%_libsoftverbs_la_CFLAGS   = $(AM_CFLAGS)
%C%_libsoftverbs_la_LDFLAGS  = $(AM_LDFLAGS) -avoid-version -shared
test_scripts += %D%/test-foreign.sh %D%/test-facts.sh %D%/test-conform.sh %D%/test-alike.sh
%D%/test-alike.log: tests/conform/test-mock.log %D%/test-conform.log
CLEANFILES += %D%/test-conform.tap

if HAVE_CHECK
softverbs_threaded = %D%/test-verbs %D%/test-windows %D%/test-rules %D%/test-lists %D%/test-cm %D%/test-peers \
                     %D%/test-adversary %D%/test-backend %D%/test-turns %D%/test-personality
test_programs += $(softverbs_threaded)
test_threaded += $(softverbs_threaded)
softverbs_rig   = %D%/rig.c %D%/rig.h
softverbs_ldadd = %D%/libsoftverbs.la $(test_ldadd)
%C%_test_verbs_SOURCES   = %D%/test-verbs.c $(softverbs_rig)
%C%_test_verbs_LDADD     = $(softverbs_ldadd)
%C%_test_windows_SOURCES = %D%/test-windows.c $(softverbs_rig)
%C%_test_windows_LDADD   = $(softverbs_ldadd)
%C%_test_rules_SOURCES   = %D%/test-rules.c $(softverbs_rig)
%C%_test_rules_LDADD     = $(softverbs_ldadd)
%C%_test_lists_SOURCES   = %D%/test-lists.c $(softverbs_rig)
%C%_test_lists_LDADD     = $(softverbs_ldadd)
%C%_test_cm_SOURCES      = %D%/test-cm.c $(softverbs_rig)
%C%_test_cm_LDADD        = $(softverbs_ldadd)
%C%_test_peers_SOURCES   = %D%/test-peers.c $(softverbs_rig)
%C%_test_peers_LDADD     = $(softverbs_ldadd)
%C%_test_adversary_SOURCES = %D%/test-adversary.c $(softverbs_rig)
%C%_test_adversary_LDADD   = $(softverbs_ldadd)
%C%_test_personality_SOURCES  = %D%/test-personality.c $(softverbs_rig)
%C%_test_personality_CPPFLAGS = $(AM_CPPFLAGS) $(RDMA_CFLAGS)
%C%_test_personality_LDADD    = backends/rdma/librdma_native.la $(softverbs_ldadd)
%C%_test_turns_SOURCES   = %D%/test-turns.c $(softverbs_rig)
%C%_test_turns_LDADD     = $(softverbs_ldadd)
# The same tests against the real libraries, for the guest of ./dev softroce (tests/softverbs/differ).
test_helpers += %D%/real-verbs %D%/real-windows %D%/real-lists %D%/real-cm %D%/real-peers
real_ldadd = $(RDMA_LIBS) $(test_ldadd)
%C%_real_verbs_SOURCES   = %D%/test-verbs.c $(softverbs_rig)
%C%_real_verbs_LDADD     = $(real_ldadd)
%C%_real_windows_SOURCES = %D%/test-windows.c $(softverbs_rig)
%C%_real_windows_LDADD   = $(real_ldadd)
%C%_real_lists_SOURCES   = %D%/test-lists.c $(softverbs_rig)
%C%_real_lists_LDADD     = $(real_ldadd)
%C%_real_cm_SOURCES      = %D%/test-cm.c $(softverbs_rig)
%C%_real_cm_LDADD        = $(real_ldadd)
%C%_real_peers_SOURCES   = %D%/test-peers.c $(softverbs_rig)
%C%_real_peers_LDADD     = $(real_ldadd)
# The native table of the RDMA backend, as it is tested on devices; linked, not preloaded, so that it
# also runs under the sanitizers.
%C%_test_backend_SOURCES  = tests/unit/test-rdma-native.c
%C%_test_backend_CPPFLAGS = $(AM_CPPFLAGS) $(RDMA_CFLAGS)
%C%_test_backend_LDADD    = backends/rdma/librdma_native.la %D%/libsoftverbs.la $(test_ldadd)
# Peers that die.
test_programs += %D%/test-kill
%C%_test_kill_SOURCES  = tests/unit/test-rdma-kill.c $(victim)
%C%_test_kill_CPPFLAGS = $(AM_CPPFLAGS) $(RDMA_CFLAGS) $(victim_cppflags)
%C%_test_kill_LDADD    = $(softverbs_engine_ldadd)
test_programs += %D%/test-death
%C%_test_death_SOURCES  = tests/unit/test-rdma-death.c $(victim)
%C%_test_death_CPPFLAGS = $(AM_CPPFLAGS) $(RDMA_CFLAGS) $(victim_cppflags)
%C%_test_death_LDADD    = $(softverbs_engine_ldadd)
test_programs += %D%/test-soak
%C%_test_soak_SOURCES  = tests/unit/test-rdma-soak.c $(victim)
%C%_test_soak_CPPFLAGS = $(AM_CPPFLAGS) $(RDMA_CFLAGS) $(victim_cppflags)
%C%_test_soak_LDADD    = $(softverbs_engine_ldadd)
# Every limit that a host can set.
test_programs += %D%/test-quota
%C%_test_quota_SOURCES  = %D%/test-quota.c
%C%_test_quota_CPPFLAGS = $(AM_CPPFLAGS) $(RDMA_CFLAGS)
%C%_test_quota_LDADD    = $(softverbs_engine_ldadd)
test_programs += %D%/test-limits
%C%_test_limits_SOURCES  = tests/unit/test-rdma-limits.c
%C%_test_limits_CPPFLAGS = $(AM_CPPFLAGS) $(RDMA_CFLAGS)
%C%_test_limits_LDADD    = $(softverbs_engine_ldadd)
# Hostile peers against engines over it, as the guest of ./dev softroce has them on rxe.
softverbs_engine_ldadd = $(rdma_kit) %D%/libsoftverbs.la \
                         $(RDMA_LIBS) $(test_ldadd)
test_programs += %D%/test-hostile
test_threaded += %D%/test-hostile
%C%_test_hostile_SOURCES  = tests/unit/test-rdma-hostile.c
%C%_test_hostile_CPPFLAGS = $(AM_CPPFLAGS) $(RDMA_CFLAGS)
%C%_test_hostile_LDADD    = $(softverbs_engine_ldadd)
# Grants from several threads, beside all that can happen to their connections.
test_waiting += %D%/test-many-hands
test_threaded += %D%/test-many-hands
%C%_test_many_hands_SOURCES  = tests/unit/test-rdma-many-hands.c
%C%_test_many_hands_CPPFLAGS = $(AM_CPPFLAGS) $(RDMA_CFLAGS)
%C%_test_many_hands_LDADD    = $(softverbs_engine_ldadd)
# Rails that fail, the same way.
test_waiting += %D%/test-returns
%C%_test_returns_SOURCES  = tests/unit/test-rdma-returns.c $(rdma_world)
%C%_test_returns_CPPFLAGS = $(AM_CPPFLAGS) $(RDMA_CFLAGS)
%C%_test_returns_LDADD    = $(softverbs_engine_ldadd)

# Connections that have given their keys.
test_waiting += %D%/test-renew
test_threaded += %D%/test-renew
%C%_test_renew_SOURCES  = tests/unit/test-rdma-renew.c
%C%_test_renew_CPPFLAGS = $(AM_CPPFLAGS) $(RDMA_CFLAGS)
%C%_test_renew_LDADD    = $(softverbs_engine_ldadd)

test_waiting += %D%/test-rails
test_threaded += %D%/test-rails
%C%_test_rails_SOURCES  = tests/unit/test-rdma-rails.c $(rdma_world)
%C%_test_rails_CPPFLAGS = $(AM_CPPFLAGS) $(RDMA_CFLAGS)
%C%_test_rails_LDADD    = $(softverbs_engine_ldadd)
# What queue pairs are told of their path.
test_programs += %D%/test-path
test_threaded += %D%/test-path
%C%_test_path_SOURCES  = tests/unit/test-rdma-path.c $(rdma_path)
%C%_test_path_CPPFLAGS = $(AM_CPPFLAGS) $(RDMA_CFLAGS)
%C%_test_path_LDADD    = $(softverbs_engine_ldadd)
# Memory of other devices.
test_programs += %D%/test-dmabuf
%C%_test_dmabuf_SOURCES  = %D%/test-dmabuf.c
%C%_test_dmabuf_CPPFLAGS = $(AM_CPPFLAGS) $(RDMA_CFLAGS)
%C%_test_dmabuf_LDADD    = $(softverbs_engine_ldadd)
# Bytes over each address of a device.
test_programs += %D%/test-address
test_threaded += %D%/test-address
%C%_test_address_SOURCES  = tests/unit/test-rdma-address.c $(rdma_path)
%C%_test_address_CPPFLAGS = $(AM_CPPFLAGS) $(RDMA_CFLAGS)
%C%_test_address_LDADD    = $(softverbs_engine_ldadd)
# Both connect at once.
test_programs += %D%/test-meet
test_threaded += %D%/test-meet
%C%_test_meet_SOURCES  = tests/unit/test-rdma-meet.c
%C%_test_meet_CPPFLAGS = $(AM_CPPFLAGS) $(RDMA_CFLAGS)
%C%_test_meet_LDADD    = $(softverbs_engine_ldadd)
# Rails by distance, on a sysfs that is made up.
test_programs += %D%/test-topology
%C%_test_topology_SOURCES  = %D%/test-topology.c
%C%_test_topology_CPPFLAGS = $(AM_CPPFLAGS) $(RDMA_CFLAGS) $(GLIB_CFLAGS)
%C%_test_topology_LDADD    = $(softverbs_engine_ldadd) $(GLIB_LIBS)
# Who takes and does not give back; rdma.so, which is loaded, finds the double among the program's libraries.
test_programs += %D%/test-misuse
%C%_test_misuse_SOURCES  = tests/unit/test-misuse.c
%C%_test_misuse_CPPFLAGS = $(AM_CPPFLAGS) -DMISUSE_BACKEND='"rdma"'
%C%_test_misuse_LDFLAGS  = -Wl,--no-as-needed
%C%_test_misuse_LDADD    = %D%/libsoftverbs.la $(host_test_ldadd)
# Limits of control groups, as files tell them.
test_programs += %D%/test-cgroup
%C%_test_cgroup_SOURCES  = %D%/test-cgroup.c
%C%_test_cgroup_CPPFLAGS = $(AM_CPPFLAGS) $(RDMA_CFLAGS) $(GLIB_CFLAGS)
%C%_test_cgroup_LDADD    = $(softverbs_engine_ldadd) $(GLIB_LIBS)
# What there is, before an engine is open.
# Functions of the test's own say what a device is like.
test_programs += %D%/test-ports
%C%_test_ports_SOURCES  = %D%/test-ports.c
%C%_test_ports_CPPFLAGS = $(AM_CPPFLAGS) $(RDMA_CFLAGS)
%C%_test_ports_LDADD    = $(softverbs_engine_ldadd)
%C%_test_ports_LDFLAGS  = $(AM_LDFLAGS) -Wl,--wrap=verbs_query_device -Wl,--wrap=verbs_query_port \
                          -Wl,--wrap=verbs_query_gids -Wl,--wrap=verbs_open_device
test_programs += %D%/test-listing
%C%_test_listing_SOURCES  = %D%/test-listing.c
%C%_test_listing_CPPFLAGS = $(AM_CPPFLAGS) $(RDMA_CFLAGS)
%C%_test_listing_LDADD    = $(softverbs_engine_ldadd)
# Native calls that are refused, one at a time.
test_waiting += %D%/test-refusals
test_threaded += %D%/test-refusals
%C%_test_refusals_SOURCES  = %D%/test-refusals.c
%C%_test_refusals_CPPFLAGS = $(AM_CPPFLAGS) $(RDMA_CFLAGS)
%C%_test_refusals_LDADD    = $(softverbs_engine_ldadd)
# What was made half way is ended by the ladder.
test_programs += %D%/test-setup
test_threaded += %D%/test-setup
%C%_test_setup_SOURCES  = %D%/test-setup.c
%C%_test_setup_CPPFLAGS = $(AM_CPPFLAGS) $(RDMA_CFLAGS)
%C%_test_setup_LDADD    = $(softverbs_engine_ldadd)
# Two devices with one address.
test_programs += %D%/test-elsewhere
test_threaded += %D%/test-elsewhere
%C%_test_elsewhere_SOURCES  = %D%/test-elsewhere.c
%C%_test_elsewhere_CPPFLAGS = $(AM_CPPFLAGS) $(RDMA_CFLAGS) -D_GNU_SOURCE
%C%_test_elsewhere_LDADD    = $(softverbs_engine_ldadd)
# A device that is lost wakes nobody.
test_programs += %D%/test-late-events
%C%_test_late_events_SOURCES  = %D%/test-late-events.c
%C%_test_late_events_CPPFLAGS = $(AM_CPPFLAGS) $(RDMA_CFLAGS)
%C%_test_late_events_LDADD    = $(softverbs_engine_ldadd)
test_programs += %D%/test-silence
test_threaded += %D%/test-silence
%C%_test_silence_SOURCES  = %D%/test-silence.c
%C%_test_silence_CPPFLAGS = $(AM_CPPFLAGS) $(RDMA_CFLAGS) -D_GNU_SOURCE
%C%_test_silence_LDADD    = $(softverbs_engine_ldadd)
# And what it says meanwhile is no proof.
test_programs += %D%/test-lost
test_threaded += %D%/test-lost
%C%_test_lost_SOURCES  = %D%/test-lost.c
%C%_test_lost_CPPFLAGS = $(AM_CPPFLAGS) $(RDMA_CFLAGS)
%C%_test_lost_LDADD    = $(softverbs_engine_ldadd)
include %D%/catalogue.mk
endif
endif
EXTRA_DIST += %D%/run %D%/differ %D%/stricter docs/softverbs.md
