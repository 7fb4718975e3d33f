/* SPDX-License-Identifier: BSD-2-Clause */
/* options.h - the keys of the RDMA backend, beside those that every backend takes. */
#ifndef RDMA_OPTIONS_H
#define RDMA_OPTIONS_H

/* clang-format off */
/* Every key once: NUMBER(member, default, min, max, help) and TEXT(member, default, help). */
#define RDMA_KEYS(NUMBER, TEXT)                                                                         \
	TEXT(rails, "",                                                                            \
	     "rails to use: DEVICE[:PORT[:ADDRESS]] or ADDRESS, comma-separated; empty = every "   \
	     "active port with an address")                                                        \
	NUMBER(prefer_ipv6, "0", 0, 1, "0 or 1: of a port's addresses take an IPv6 one")           \
	NUMBER(timeout, "16", 1, 31, "acknowledgement time-out 4.096 us x 2^n, n = 1..31")         \
	NUMBER(retry, "6", 0, 6, "transport retries, 0..6 (7 may be endless)")                     \
	NUMBER(rnr_retry, "6", 0, 6, "retries while the peer has no receive posted, 0..6")         \
	NUMBER(min_rnr_timer, "12", 1, 31,                                                         \
	       "code of the delay asked for then, 1..31 (12: 0.64 ms)")                            \
	NUMBER(traffic_class, "0", 0, 255, "type of service of the connections, 0..255")           \
	NUMBER(service_level, "-1", -1, 7,                                                         \
	       "priority of what this end sends, 0..7; -1 = as librdmacm has it")                  \
	NUMBER(pkey, "0", 0, 65535,                                                                \
	       "partition key, 1..65535; 0 = the default partition, as librdmacm has it")          \
	NUMBER(rd_atomic, "16", 1, 128,                                                            \
	       "READs under way per connection, 1..128; the minimum of both ends counts")          \
	NUMBER(dmabuf, "1", 0, 1, "0 or 1: take dma-bufs where every device does")                 \
	NUMBER(relaxed_ordering, "0", 0, 1, "0 or 1: let the bus reorder writes (ibv_reg_mr(3))")  \
	NUMBER(connect_ms, "5000", 1, 600000,                                                      \
	       "time to resolve an address or a route, 1..600000 ms")                              \
	NUMBER(allow_weak_environment, "0", 0, 1,                                                  \
	       "1: open although RDMAV_ALLOW_DISASSOC_DESTROY or MLX4_DEVICE_FATAL_CLEANUP is "    \
	       "set; "                                                                             \
	       "no destroy is then a proof")                                                       \
	NUMBER(allow_unknown_provider, "0", 0, 1,                                                  \
	       "1: open a device whose driver is not known; only completions are then proofs")     \
	TEXT(call_log, "", "file to which every native control call is appended, as text") \
	TEXT(sysfs, "/sys", "where sysfs is; NUMA nodes of devices and their distances are read there")
/* clang-format on */

/* Lines of a table of struct escrow_option. */
#define RDMA_OPTION_NUMBER(member, value, min, max, help) {"rdma." #member, value, help},
#define RDMA_OPTION_TEXT(member, value, help) {"rdma." #member, value, help},
#define RDMA_OPTIONS RDMA_KEYS(RDMA_OPTION_NUMBER, RDMA_OPTION_TEXT)

#endif
