# One file a subject, and three lines:
#   test_programs += %D%/test-x
#   %C%_test_x_SOURCES = %D%/test-x.c
#   %C%_test_x_LDADD   = backends/ledger/libledger.la $(test_ldadd)
# Include "tests/lib/testing.h" only; it brings Check.

if BACKEND_RDMA
test_programs += %D%/test-rdma-native
%C%_test_rdma_native_SOURCES  = %D%/test-rdma-native.c
%C%_test_rdma_native_CPPFLAGS = $(AM_CPPFLAGS) $(RDMA_CFLAGS)
%C%_test_rdma_native_LDADD    = backends/rdma/librdma_native.la $(RDMA_LIBS) $(test_ldadd)

# Engines over RDMA devices
rdma_world = %D%/rdma-world.c %D%/rdma-world.h
check_LTLIBRARIES += %D%/librdma-kit.la
%C%_librdma_kit_la_SOURCES  = %D%/rdma-kit.c %D%/rdma-kit.h %D%/rdma-faults.c %D%/rdma-host.c %D%/rdma-host.h backends/rdma/entry.c
%C%_librdma_kit_la_CPPFLAGS = $(AM_CPPFLAGS) $(RDMA_CFLAGS)
rdma_kit = %D%/librdma-kit.la backends/rdma/librdma_native.la backends/engine/libengine.la
rdma_test_ldadd = $(rdma_kit) $(RDMA_LIBS) $(test_ldadd)
test_programs += %D%/test-rdma-hostile
%C%_test_rdma_hostile_SOURCES  = %D%/test-rdma-hostile.c
%C%_test_rdma_hostile_CPPFLAGS = $(AM_CPPFLAGS) $(RDMA_CFLAGS)
%C%_test_rdma_hostile_LDADD    = $(rdma_test_ldadd)
test_programs += %D%/test-rdma-returns
%C%_test_rdma_returns_SOURCES  = %D%/test-rdma-returns.c $(rdma_world)
%C%_test_rdma_returns_CPPFLAGS = $(AM_CPPFLAGS) $(RDMA_CFLAGS)
%C%_test_rdma_returns_LDADD    = $(rdma_test_ldadd)

test_programs += %D%/test-rdma-renew
%C%_test_rdma_renew_SOURCES  = %D%/test-rdma-renew.c
%C%_test_rdma_renew_CPPFLAGS = $(AM_CPPFLAGS) $(RDMA_CFLAGS)
%C%_test_rdma_renew_LDADD    = $(rdma_test_ldadd)

test_programs += %D%/test-rdma-rails
%C%_test_rdma_rails_SOURCES  = %D%/test-rdma-rails.c $(rdma_world)
%C%_test_rdma_rails_CPPFLAGS = $(AM_CPPFLAGS) $(RDMA_CFLAGS)
%C%_test_rdma_rails_LDADD    = $(rdma_test_ldadd)
rdma_path = %D%/rdma-path.c %D%/rdma-path.h
test_programs += %D%/test-rdma-path
%C%_test_rdma_path_SOURCES  = %D%/test-rdma-path.c $(rdma_path)
%C%_test_rdma_path_CPPFLAGS = $(AM_CPPFLAGS) $(RDMA_CFLAGS)
%C%_test_rdma_path_LDADD    = $(rdma_test_ldadd)
test_programs += %D%/test-rdma-address
%C%_test_rdma_address_SOURCES  = %D%/test-rdma-address.c $(rdma_path)
%C%_test_rdma_address_CPPFLAGS = $(AM_CPPFLAGS) $(RDMA_CFLAGS)
%C%_test_rdma_address_LDADD    = $(rdma_test_ldadd)
test_programs += %D%/test-rdma-meet
%C%_test_rdma_meet_SOURCES  = %D%/test-rdma-meet.c
%C%_test_rdma_meet_CPPFLAGS = $(AM_CPPFLAGS) $(RDMA_CFLAGS)
%C%_test_rdma_meet_LDADD    = $(rdma_test_ldadd)
test_programs += %D%/test-rdma-limits
%C%_test_rdma_limits_SOURCES  = %D%/test-rdma-limits.c
%C%_test_rdma_limits_CPPFLAGS = $(AM_CPPFLAGS) $(RDMA_CFLAGS)
%C%_test_rdma_limits_LDADD    = $(rdma_test_ldadd)
test_programs += %D%/test-rdma-cgroup
%C%_test_rdma_cgroup_SOURCES  = %D%/test-rdma-cgroup.c
%C%_test_rdma_cgroup_CPPFLAGS = $(AM_CPPFLAGS) $(RDMA_CFLAGS)
%C%_test_rdma_cgroup_LDADD    = $(rdma_test_ldadd)
test_programs += %D%/test-rdma-misuse
%C%_test_rdma_misuse_SOURCES  = %D%/test-misuse.c
%C%_test_rdma_misuse_CPPFLAGS = $(AM_CPPFLAGS) -DMISUSE_BACKEND='"rdma"'
%C%_test_rdma_misuse_LDADD    = $(host_test_ldadd)
test_programs += %D%/test-rdma-kill
victim = %D%/victim.c %D%/victim.h tests/lib/hang.c tests/lib/hang.h
victim_cppflags = -D_GNU_SOURCE -DTOP_SRCDIR='"$(abs_top_srcdir)"'
%C%_test_rdma_kill_SOURCES  = %D%/test-rdma-kill.c $(victim)
%C%_test_rdma_kill_CPPFLAGS = $(AM_CPPFLAGS) $(RDMA_CFLAGS) $(victim_cppflags)
%C%_test_rdma_kill_LDADD    = $(rdma_test_ldadd)
test_programs += %D%/test-rdma-death
%C%_test_rdma_death_SOURCES  = %D%/test-rdma-death.c $(victim)
%C%_test_rdma_death_CPPFLAGS = $(AM_CPPFLAGS) $(RDMA_CFLAGS) $(victim_cppflags)
%C%_test_rdma_death_LDADD    = $(rdma_test_ldadd)
test_programs += %D%/test-rdma-soak
%C%_test_rdma_soak_SOURCES  = %D%/test-rdma-soak.c $(victim)
%C%_test_rdma_soak_CPPFLAGS = $(AM_CPPFLAGS) $(RDMA_CFLAGS) $(victim_cppflags)
%C%_test_rdma_soak_LDADD    = $(rdma_test_ldadd)
endif

# libescrow, and the backends its tests load.
include %D%/bad/local.mk
check_LTLIBRARIES += %D%/libmodules.la
%C%_libmodules_la_SOURCES = %D%/modules.c %D%/modules.h
%C%_libmodules_la_CFLAGS  = $(AM_CFLAGS) $(CHECK_CFLAGS)
check_LTLIBRARIES += %D%/libhosting.la
%C%_libhosting_la_SOURCES = %D%/hosting.c %D%/hosting.h
%C%_libhosting_la_CFLAGS  = $(AM_CFLAGS) $(CHECK_CFLAGS)
host_test_ldadd = tests/unit/libhosting.la tests/unit/libmodules.la plugin/libescrow.la $(test_ldadd)

test_programs += %D%/test-elf-hostile
%C%_test_elf_hostile_SOURCES = %D%/test-elf-hostile.c
%C%_test_elf_hostile_LDADD   = $(host_test_ldadd)

test_programs += %D%/test-elf
%C%_test_elf_SOURCES = %D%/test-elf.c
%C%_test_elf_LDADD   = $(host_test_ldadd)

test_programs += %D%/test-probe
%C%_test_probe_SOURCES = %D%/test-probe.c
%C%_test_probe_LDADD   = $(host_test_ldadd)

test_programs += %D%/test-load
%C%_test_load_SOURCES = %D%/test-load.c
%C%_test_load_LDADD   = $(host_test_ldadd)

test_programs += %D%/test-region
%C%_test_region_SOURCES = %D%/test-region.c
%C%_test_region_LDADD   = $(host_test_ldadd)

test_programs += %D%/test-liar
%C%_test_liar_SOURCES = %D%/test-liar.c
%C%_test_liar_LDADD   = $(host_test_ldadd)

test_programs += %D%/test-process-quota
%C%_test_process_quota_SOURCES = %D%/test-process-quota.c
%C%_test_process_quota_CFLAGS  = $(AM_CFLAGS) $(GLIB_CFLAGS)
%C%_test_process_quota_LDADD   = $(host_test_ldadd) $(GLIB_LIBS)

test_programs += %D%/test-process-names
%C%_test_process_names_SOURCES = %D%/test-process-names.c
%C%_test_process_names_LDADD   = $(host_test_ldadd)

test_programs += %D%/test-host
%C%_test_host_SOURCES = %D%/test-host.c
%C%_test_host_CFLAGS  = $(AM_CFLAGS) $(GLIB_CFLAGS)
%C%_test_host_LDADD   = $(host_test_ldadd) $(GLIB_LIBS)

test_programs += %D%/test-fork
%C%_test_fork_SOURCES = %D%/test-fork.c tests/lib/leave.h
%C%_test_fork_CFLAGS  = $(AM_CFLAGS) $(GLIB_CFLAGS)
%C%_test_fork_LDADD   = $(host_test_ldadd) $(GLIB_LIBS)

test_scripts  += %D%/test-libescrow-page.sh
# In secure mode no path but the program's own says where the library is.
test_scripts  += %D%/test-secure.sh
test_helpers  += %D%/finder
%C%_finder_SOURCES = %D%/finder.c
%C%_finder_LDADD   = plugin/libescrow.la
%C%_finder_LDFLAGS = $(AM_LDFLAGS) -Wl,-rpath,$(abs_top_builddir)/plugin/.libs

test_programs += %D%/test-swap
%C%_test_swap_SOURCES = %D%/test-swap.c %D%/swapping.c %D%/swapping.h
%C%_test_swap_LDADD   = $(host_test_ldadd)

test_programs += %D%/test-swap-late
%C%_test_swap_late_SOURCES = %D%/test-swap-late.c %D%/swapping.c %D%/swapping.h
%C%_test_swap_late_LDADD   = $(host_test_ldadd)

test_programs += %D%/test-swap-mute
%C%_test_swap_mute_SOURCES = %D%/test-swap-mute.c %D%/swapping.c %D%/swapping.h
%C%_test_swap_mute_LDADD   = $(host_test_ldadd)

test_programs += %D%/test-batch
%C%_test_batch_SOURCES = %D%/test-batch.c %D%/pair.c %D%/pair.h
%C%_test_batch_LDADD   = $(host_test_ldadd)
test_programs += %D%/test-told
%C%_test_told_SOURCES = %D%/test-told.c
%C%_test_told_LDADD   = $(host_test_ldadd)
test_programs += %D%/test-lend
test_threaded += %D%/test-lend
%C%_test_lend_SOURCES = %D%/test-lend.c plugin/lend.c plugin/table.c
%C%_test_lend_CFLAGS  = $(AM_CFLAGS)
%C%_test_lend_LDADD   = $(test_ldadd)
test_programs += %D%/test-room
%C%_test_room_SOURCES = %D%/test-room.c
%C%_test_room_LDADD   = $(host_test_ldadd)

test_programs += %D%/test-host-args
%C%_test_host_args_SOURCES = %D%/test-host-args.c
%C%_test_host_args_LDADD   = $(host_test_ldadd)

test_programs += %D%/test-stale
%C%_test_stale_SOURCES  = %D%/test-stale.c
%C%_test_stale_CPPFLAGS = $(AM_CPPFLAGS) -D_GNU_SOURCE
%C%_test_stale_CFLAGS   = $(AM_CFLAGS) $(GLIB_CFLAGS)
%C%_test_stale_LDADD    = $(host_test_ldadd) $(GLIB_LIBS)

test_programs += %D%/test-process-slots
%C%_test_process_slots_SOURCES = %D%/test-process-slots.c %D%/pair.c %D%/pair.h
%C%_test_process_slots_CFLAGS  = $(AM_CFLAGS) $(GLIB_CFLAGS)
%C%_test_process_slots_LDADD   = $(host_test_ldadd) $(GLIB_LIBS)

# Who takes and does not give back: on the mock; on real verbs; and in tests/softverbs.
test_programs += %D%/test-misuse
%C%_test_misuse_SOURCES = %D%/test-misuse.c
%C%_test_misuse_LDADD   = $(host_test_ldadd)

test_programs += %D%/test-custody
test_threaded += %D%/test-custody
%C%_test_custody_SOURCES = %D%/test-custody.c %D%/pair.c %D%/pair.h
%C%_test_custody_LDADD   = $(host_test_ldadd)

test_programs += %D%/test-swap-data
test_threaded += %D%/test-swap-data
%C%_test_swap_data_SOURCES = %D%/test-swap-data.c %D%/pair.c %D%/pair.h
%C%_test_swap_data_LDADD   = $(host_test_ldadd)

test_programs += %D%/test-beside
%C%_test_beside_SOURCES = %D%/test-beside.c %D%/pair.c %D%/pair.h
%C%_test_beside_LDADD   = $(host_test_ldadd)

# The mock's device, without the engine
mock_ends = %D%/mock-ends.c %D%/mock-ends.h
test_programs += %D%/test-mock-native %D%/test-mock-device %D%/test-mock-meet %D%/test-mock-process
test_threaded += %D%/test-mock-device %D%/test-mock-process
%C%_test_mock_native_SOURCES  = %D%/test-mock-native.c $(mock_ends)
%C%_test_mock_native_LDADD    = backends/mock/libmock.la $(test_ldadd)
%C%_test_mock_device_SOURCES  = %D%/test-mock-device.c $(mock_ends)
%C%_test_mock_device_LDADD    = backends/mock/libmock.la $(test_ldadd)
%C%_test_mock_meet_SOURCES    = %D%/test-mock-meet.c $(mock_ends)
%C%_test_mock_meet_LDADD      = backends/mock/libmock.la $(test_ldadd)
%C%_test_mock_process_SOURCES = %D%/test-mock-process.c $(mock_ends)
%C%_test_mock_process_LDADD   = backends/mock/libmock.la $(test_ldadd)

# The ledger
include %D%/ledger/local.mk
test_programs += %D%/test-ledger-rules %D%/test-ledger-owner %D%/test-ledger-loan \
    %D%/test-ledger-op %D%/test-ledger-quota %D%/test-ledger-grant %D%/test-ledger-join %D%/test-ledger-quarantine \
    %D%/test-ledger-row %D%/test-ledger-walk %D%/test-ledger-threads %D%/test-ledger-check %D%/test-ledger-places
%C%_test_ledger_check_SOURCES = %D%/test-ledger-check.c %D%/ledger/windows.h
%C%_test_ledger_check_LDADD   = $(ledger_test_ldadd)
test_threaded += %D%/test-ledger-threads
%C%_test_ledger_rules_SOURCES = %D%/test-ledger-rules.c
%C%_test_ledger_rules_LDADD   = $(ledger_test_ldadd)
%C%_test_ledger_owner_SOURCES = %D%/test-ledger-owner.c
%C%_test_ledger_owner_LDADD   = $(ledger_test_ldadd)
%C%_test_ledger_loan_SOURCES = %D%/test-ledger-loan.c
%C%_test_ledger_loan_LDADD   = $(ledger_test_ldadd)
%C%_test_ledger_op_SOURCES = %D%/test-ledger-op.c
%C%_test_ledger_op_LDADD   = $(ledger_test_ldadd)
%C%_test_ledger_quota_SOURCES = %D%/test-ledger-quota.c
%C%_test_ledger_quota_LDADD   = $(ledger_test_ldadd)
%C%_test_ledger_grant_SOURCES = %D%/test-ledger-grant.c %D%/ledger/windows.h
%C%_test_ledger_grant_LDADD   = $(ledger_test_ldadd)
%C%_test_ledger_join_SOURCES = %D%/test-ledger-join.c %D%/ledger/windows.h
%C%_test_ledger_join_LDADD   = $(ledger_test_ldadd)
%C%_test_ledger_places_SOURCES = %D%/test-ledger-places.c
%C%_test_ledger_places_LDADD   = $(ledger_test_ldadd)
%C%_test_ledger_quarantine_SOURCES = %D%/test-ledger-quarantine.c
%C%_test_ledger_quarantine_LDADD   = $(ledger_test_ldadd)
%C%_test_ledger_row_SOURCES = %D%/test-ledger-row.c
%C%_test_ledger_row_LDADD   = $(ledger_test_ldadd)
%C%_test_ledger_walk_SOURCES = %D%/test-ledger-walk.c
%C%_test_ledger_walk_LDADD   = $(ledger_test_ldadd)
%C%_test_ledger_threads_SOURCES = %D%/test-ledger-threads.c
%C%_test_ledger_threads_LDADD   = $(ledger_test_ldadd)

# The engine, over the mock's device
engine_kit = %D%/engine-kit.c %D%/engine-kit.h
engine_test_ldadd = backends/engine/libengine.la backends/mock/libmock.la $(test_ldadd)
test_programs += %D%/test-engine-batch
%C%_test_engine_batch_SOURCES = %D%/test-engine-batch.c $(engine_kit)
%C%_test_engine_batch_LDADD   = $(engine_test_ldadd)
# Functions of the test's own stand before the engine's choice of a connection, and before what wakes the host.
test_programs += %D%/test-engine-midway
%C%_test_engine_midway_SOURCES = %D%/test-engine-midway.c $(engine_kit)
%C%_test_engine_midway_LDADD   = $(engine_test_ldadd)
%C%_test_engine_midway_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=en_choose -Wl,--wrap=event_wake
test_programs += %D%/test-engine-path
%C%_test_engine_path_SOURCES = %D%/test-engine-path.c $(engine_kit)
%C%_test_engine_path_LDADD   = $(engine_test_ldadd)

test_programs += %D%/test-engine-teardown
%C%_test_engine_teardown_SOURCES = %D%/test-engine-teardown.c $(engine_kit)
%C%_test_engine_teardown_LDADD   = $(engine_test_ldadd)

test_programs += %D%/test-engine-wire %D%/test-engine-threads
test_threaded += %D%/test-engine-threads
%C%_test_engine_wire_SOURCES    = %D%/test-engine-wire.c
%C%_test_engine_wire_LDADD      = $(engine_test_ldadd)
%C%_test_engine_threads_SOURCES = %D%/test-engine-threads.c $(engine_kit)
%C%_test_engine_threads_LDADD   = $(engine_test_ldadd)

test_programs += %D%/test-engine-grants
test_threaded += %D%/test-engine-grants
%C%_test_engine_grants_SOURCES = %D%/test-engine-grants.c $(engine_kit)
%C%_test_engine_grants_LDADD   = $(engine_test_ldadd)
test_programs += %D%/test-engine-binds
%C%_test_engine_binds_SOURCES = %D%/test-engine-binds.c $(engine_kit)
%C%_test_engine_binds_LDADD   = $(engine_test_ldadd)
%C%_test_engine_binds_LDFLAGS = -Wl,--wrap=en_help_work
test_programs += %D%/test-engine-fence
%C%_test_engine_fence_SOURCES = %D%/test-engine-fence.c $(engine_kit)
%C%_test_engine_fence_LDADD   = $(engine_test_ldadd)
test_programs += %D%/test-engine-windows
%C%_test_engine_windows_SOURCES = %D%/test-engine-windows.c $(engine_kit)
%C%_test_engine_windows_LDADD   = $(engine_test_ldadd)
renew_kit = %D%/renew-kit.c %D%/renew-kit.h $(engine_kit)
test_programs += %D%/test-engine-renew %D%/test-engine-silence
%C%_test_engine_renew_SOURCES   = %D%/test-engine-renew.c $(renew_kit)
%C%_test_engine_renew_LDADD     = $(engine_test_ldadd)
%C%_test_engine_silence_SOURCES = %D%/test-engine-silence.c $(renew_kit)
%C%_test_engine_silence_LDADD   = $(engine_test_ldadd)
test_programs += %D%/test-engine-keys
%C%_test_engine_keys_SOURCES = %D%/test-engine-keys.c $(renew_kit)
%C%_test_engine_keys_LDADD   = $(engine_test_ldadd)
%C%_test_engine_keys_LDFLAGS = -Wl,--wrap=en_keys_asked -Wl,--wrap=en_window_take
test_programs += %D%/test-engine-post
%C%_test_engine_post_SOURCES = %D%/test-engine-post.c $(engine_kit)
%C%_test_engine_post_LDADD   = $(engine_test_ldadd)
test_programs += %D%/test-engine-room
%C%_test_engine_room_SOURCES = %D%/test-engine-room.c $(engine_kit)
%C%_test_engine_room_LDADD   = $(engine_test_ldadd)
test_programs += %D%/test-engine-poison
%C%_test_engine_poison_SOURCES = %D%/test-engine-poison.c $(engine_kit)
%C%_test_engine_poison_LDADD   = $(engine_test_ldadd)
test_programs += %D%/test-engine-gone
%C%_test_engine_gone_SOURCES = %D%/test-engine-gone.c $(engine_kit)
%C%_test_engine_gone_LDADD   = $(engine_test_ldadd)
%C%_test_engine_gone_LDFLAGS = -Wl,--wrap=ledger_owner_event

test_programs += %D%/test-engine-meet %D%/test-engine-talk %D%/test-engine-claims
%C%_test_engine_meet_SOURCES = %D%/test-engine-meet.c $(engine_kit)
%C%_test_engine_meet_LDADD   = $(engine_test_ldadd)
%C%_test_engine_talk_SOURCES = %D%/test-engine-talk.c $(engine_kit)
%C%_test_engine_talk_LDADD   = $(engine_test_ldadd)
%C%_test_engine_claims_SOURCES = %D%/test-engine-claims.c $(engine_kit)
%C%_test_engine_claims_LDADD   = $(engine_test_ldadd)

test_programs += %D%/test-engine-messages %D%/test-engine-offers %D%/test-engine-many %D%/test-engine-hostile \
    %D%/test-engine-plan
%C%_test_engine_messages_SOURCES = %D%/test-engine-messages.c $(engine_kit)
%C%_test_engine_messages_LDADD   = $(engine_test_ldadd)
%C%_test_engine_many_SOURCES    = %D%/test-engine-many.c $(engine_kit)
%C%_test_engine_many_LDADD      = $(engine_test_ldadd)
%C%_test_engine_offers_SOURCES  = %D%/test-engine-offers.c $(engine_kit)
%C%_test_engine_offers_LDADD    = $(engine_test_ldadd)
%C%_test_engine_hostile_SOURCES = %D%/test-engine-hostile.c $(engine_kit)
%C%_test_engine_hostile_LDADD   = $(engine_test_ldadd)
%C%_test_engine_plan_SOURCES    = %D%/test-engine-plan.c $(engine_kit)
%C%_test_engine_plan_LDADD      = $(engine_test_ldadd)

test_programs += %D%/test-engine-handles %D%/test-engine-walk
%C%_test_engine_handles_SOURCES = %D%/test-engine-handles.c %D%/handles.h $(engine_kit)
%C%_test_engine_handles_LDADD   = $(engine_test_ldadd)
%C%_test_engine_walk_SOURCES    = %D%/test-engine-walk.c %D%/handles.h $(engine_kit)
%C%_test_engine_walk_LDADD      = $(engine_test_ldadd)

test_programs += %D%/test-engine-slots
%C%_test_engine_slots_SOURCES = %D%/test-engine-slots.c tests/lib/leave.h $(engine_kit)
%C%_test_engine_slots_LDADD   = $(engine_test_ldadd)

test_programs += %D%/test-bad-input %D%/test-field-reports
%C%_test_bad_input_SOURCES     = %D%/test-bad-input.c %D%/reports.h $(engine_kit)
%C%_test_bad_input_LDADD       = $(engine_test_ldadd)
%C%_test_field_reports_SOURCES = %D%/test-field-reports.c %D%/reports.h $(engine_kit)
%C%_test_field_reports_LDADD   = $(engine_test_ldadd)
