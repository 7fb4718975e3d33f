/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * config.h - the keys that every backend on the engine takes, in one table.
 *
 * ENGINE_KEYS(X): X(key, default, kind, min, max, member, help).  Kinds: SIZE takes a suffix K, M
 * or G (1024 based); COUNT, MS and BOOL are decimal numbers.
 */
#ifndef ENGINE_CONFIG_H
#define ENGINE_CONFIG_H

#include <stdint.h>

#include "backends/engine/native.h"

/* clang-format off */
#define ENGINE_KEYS(X) \
	X("num_lanes", "1", COUNT, 1, 16, num_lanes, \
	  "completion queues a device, and connections a rail and peer; 1..16") \
	X("max_rails", "0", COUNT, 0, 16, max_rails, \
	  "use at most so many of the rails that are there; 0 = all, 0..16") \
	X("topology", "1", COUNT, 0, 2, topology, \
	  "the NUMA distance of memory and rail: 0 = no matter, 1 = a rail twice as far gets half as much, " \
	  "2 = the nearest that has room; 0..2") \
	X("slice_bytes", "1M", SIZE, 4096, 1073741824, slice_bytes, \
	  "an op is cut into slices of this size; bytes, 4K..1G") \
	X("send_depth", "128", COUNT, 8, 16384, send_depth, \
	  "slices outstanding on one connection; 8..16384") \
	X("recv_depth", "16", COUNT, 4, 1024, recv_depth, \
	  "control messages a peer may have under way; 4..1024") \
	X("max_regions", "1024", COUNT, 1, 65536, max_regions, "registrations; 1..65536") \
	X("max_peers", "64", COUNT, 1, 4096, max_peers, "peers at a time; 1..4096") \
	X("max_grants", "1024", COUNT, 1, 262144, max_grants, "grants and offers; 1..262144") \
	X("max_peer_grants", "64", COUNT, 1, 4096, max_peer_grants, \
	  "grants to one peer: send queue slots are kept for them; 1..4096") \
	X("max_remotes", "1024", COUNT, 1, 262144, max_remotes, "imported grants; 1..262144") \
	X("max_ops", "1024", COUNT, 1, 65536, max_ops, "ops outstanding; 1..65536") \
	X("max_op_bytes", "1G", SIZE, 4096, 1099511627776, max_op_bytes, \
	  "of one op; bytes, 4K..1024G") \
	X("max_sge", "16", COUNT, 1, 64, max_sge, "ranges of one op; 1..64") \
	X("max_message_bytes", "64K", SIZE, 65536, 1048576, max_message_bytes, \
	  "of one message; bytes, 64K..1M") \
	X("max_messages", "32", COUNT, 4, 4096, max_messages, \
	  "messages under way; one that comes in for each of max_peers more; 4..4096") \
	X("quota.bytes", "0", SIZE, 0, UINT64_MAX, quota[ESCROW_CHARGE_BYTES], \
	  "registered bytes of the engine; 0 = what RLIMIT_MEMLOCK leaves, if it binds") \
	X("quota.regions", "0", COUNT, 0, UINT32_MAX, quota[ESCROW_CHARGE_REGIONS], \
	  "registrations of the engine; 0 = max_regions") \
	X("quota.grants", "0", COUNT, 0, UINT32_MAX, quota[ESCROW_CHARGE_GRANTS], \
	  "grants of the engine; 0 = max_grants") \
	X("quota.granted_bytes", "0", SIZE, 0, UINT64_MAX, quota[ESCROW_CHARGE_GRANTED_BYTES], \
	  "bytes granted, each grant counted; 0 = no limit") \
	X("quota.sq_slots", "0", COUNT, 0, UINT32_MAX, quota[ESCROW_CHARGE_SQ_SLOTS], \
	  "send queue slots of all connections; 0 = as many as max_peers need") \
	X("quota.cq_slots", "0", COUNT, 0, UINT32_MAX, quota[ESCROW_CHARGE_CQ_SLOTS], \
	  "completion queue slots of all connections; 0 = as many as max_peers need") \
	X("quota.connections", "0", COUNT, 0, UINT32_MAX, quota[ESCROW_CHARGE_CONNECTIONS], \
	  "connections of the engine; 0 = as many as max_peers need") \
	X("quota.ops", "0", COUNT, 0, UINT32_MAX, quota[ESCROW_CHARGE_OPS], \
	  "ops of the engine; 0 = max_ops") \
	X("peer_quota.grants", "0", COUNT, 0, UINT32_MAX, peer_quota[ESCROW_CHARGE_GRANTS], \
	  "grants to one peer name; 0 = no limit") \
	X("peer_quota.granted_bytes", "0", SIZE, 0, UINT64_MAX, \
	  peer_quota[ESCROW_CHARGE_GRANTED_BYTES], "bytes granted to one peer name; 0 = no limit") \
	X("peer_quota.sq_slots", "0", COUNT, 0, UINT32_MAX, peer_quota[ESCROW_CHARGE_SQ_SLOTS], \
	  "send queue slots of one peer name; 0 = no limit") \
	X("peer_quota.cq_slots", "0", COUNT, 0, UINT32_MAX, peer_quota[ESCROW_CHARGE_CQ_SLOTS], \
	  "completion queue slots of one peer name; 0 = no limit") \
	X("peer_quota.connections", "0", COUNT, 0, UINT32_MAX, \
	  peer_quota[ESCROW_CHARGE_CONNECTIONS], "connections of one peer name; 0 = no limit") \
	X("peer_quota.ops", "0", COUNT, 0, UINT32_MAX, peer_quota[ESCROW_CHARGE_OPS], \
	  "ops with one peer name; 0 = no limit") \
	X("quota.any_peers", "0", COUNT, 0, UINT32_MAX, any_peers, \
	  "grants to all peers together that came by an open invitation; 0 = no limit") \
	X("stuck_share", "50", COUNT, 1, 100, stuck_share, \
	  "per cent of a quota that may be quarantined before admission stops; 1..100") \
	X("renew_share", "50", COUNT, 1, 100, renew_share, \
	  "per cent of the windows that are not in use which may be held out before a connection is renewed; " \
	  "1..100") \
	X("drain_ms", "1000", MS, 0, 3600000, drain_ms, \
	  "how long a teardown waits for completions before it resets; ms, 0..3600000") \
	X("connect_ms", "10000", MS, 1, 3600000, connect_ms, \
	  "how long a connection may take to come up; ms, 1..3600000") \
	X("rail_retry_ms", "200", MS, 1, 60000, rail_retry_ms, \
	  "wait before a connection that was lost is made again, doubled each time, up to 64 times as " \
	  "long; ms, 1..60000") \
	X("events", "1", BOOL, 0, 1, events, "event_fd and arm; 0 = polling only; 0 or 1") \
	X("control_thread", "2", COUNT, 0, 2, control_thread, \
	  "native control steps run on: 0 = the caller of poll, 1 = a thread, 2 = as needed") \
	X("weak.reset", "0", BOOL, 0, 1, weak[0], "do not take a reset as a proof; 0 or 1") \
	X("weak.dereg", "0", BOOL, 0, 1, weak[1], "do not take a deregistration as a proof; 0 or 1") \
	X("weak.dealloc_window", "0", BOOL, 0, 1, weak[2], \
	  "do not take a deallocated window as a proof; 0 or 1") \
	X("weak.destroy", "0", BOOL, 0, 1, weak[3], \
	  "do not take a destroyed connection as a proof; 0 or 1") \
	X("test.window_binds", "255", COUNT, 1, 255, window_binds, \
	  "binds of a window before another takes its place; for tests only; 1..255") \
	X("test.faults", "0", BOOL, 0, 1, test_faults, \
	  "offer org.escrow.test-fault/1; for tests only; 0 or 1")
/* clang-format on */

/* Lines of a descriptor's option table: ENGINE_OPTIONS {"own", "1", "help"}, ... */
#define ENGINE_OPTION(key, value, kind, min, max, member, help) {key, value, help},
#define ENGINE_OPTIONS ENGINE_KEYS(ENGINE_OPTION)

#define TOPOLOGY_NEAREST 2u
#define CONFIG_CHARGES 9u /* ESCROW_CHARGE_* are 1..8 */
#define CONFIG_MAX_NATIVE 32u

struct config {
	uint64_t num_lanes;
	uint64_t max_rails;
	uint64_t topology;
	uint64_t slice_bytes;
	uint64_t send_depth;
	uint64_t recv_depth;
	uint64_t max_regions;
	uint64_t max_peers;
	uint64_t max_grants;
	uint64_t max_peer_grants;
	uint64_t max_remotes;
	uint64_t max_ops;
	uint64_t max_op_bytes;
	uint64_t max_sge;
	uint64_t max_message_bytes;
	uint64_t max_messages;
	uint64_t quota[CONFIG_CHARGES];
	uint64_t peer_quota[CONFIG_CHARGES];
	uint64_t any_peers;
	uint64_t stuck_share;
	uint64_t renew_share;
	uint64_t drain_ms;
	uint64_t connect_ms;
	uint64_t rail_retry_ms;
	uint64_t events;
	uint64_t control_thread;
	uint64_t weak[4];
	uint64_t window_binds;
	uint64_t test_faults;
	/* What is the native implementation's; in-call of open. */
	struct escrow_kv native[CONFIG_MAX_NATIVE];
	uint32_t nnative;
	uint32_t reserved0;
};

/*
 * Reads the settings of open's arguments over the defaults; a key that is given twice counts as
 * given last.  E_INVALID: NULL, an unknown key (the text names the nearest), a value (the text says
 * what is allowed).
 */
escrow_status config_read(const struct escrow_open_args *args, const struct native_ops *native,
			  struct config *out, struct escrow_error *error);

/*
 * One value of a kind; for native implementations too.  "64K" -> 65536 if suffixes are allowed.
 */
escrow_status config_number(const char *key, const char *value, int suffixes, uint64_t min,
			    uint64_t max, uint64_t *out, struct escrow_error *error);

#endif
