/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * escrow/rails.h - which rails there are, before an engine is open: extension "org.escrow.rails/1".
 *
 * get_extension gives this table for engine NULL too.  A backend that does not know of it need not
 * survive being asked so: ask in a process of its own first, as escrow_rails() of libescrow does.
 *
 * struct escrow_rail grows at its end, by the stride that the caller gives: an element is written as
 * far as that goes.
 */
#ifndef ESCROW_RAILS_H
#define ESCROW_RAILS_H

#include <escrow/backend.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ESCROW_RAILS_ID "org.escrow.rails/1"

/* What open does with it. */
#define ESCROW_RAIL_UNUSED 0u
#define ESCROW_RAIL_USED 1u
#define ESCROW_RAIL_REFUSED 2u /* it would be used, and open fails because of its device */

#define ESCROW_RAIL_DOWN 0u
#define ESCROW_RAIL_UP 1u
#define ESCROW_RAIL_UNKNOWN 2u /* nobody could be asked */

/* An address of a port; a port that has none, gid_index UINT32_MAX; or a whole device, port 0. */
struct escrow_rail {
	uint32_t use;       /* ESCROW_RAIL_UNUSED, _USED, _REFUSED */
	uint32_t state;     /* ESCROW_RAIL_DOWN, _UP, _UNKNOWN */
	uint32_t number;    /* as in the names of counters, rail.N; UINT32_MAX unless it is used */
	uint32_t port;      /* from 1 */
	uint32_t gid_index; /* where the address stands in the port's table today */
	uint32_t numa_node; /* UINT32_MAX = not known */
	uint32_t mtu;       /* bytes; 0 = not known */
	uint32_t reserved0;
	uint8_t gid[16];
	/* Texts, terminated; empty = not known. */
	char device[64];
	char provider[32];
	char type[16]; /* "RoCEv2", "RoCEv1", "InfiniBand" */
	char address[48];
	char why[168]; /* why it is not used, or refused */
};

struct escrow_rails {
	uint32_t size;
	uint32_t reserved0;

	/*
	 * [any] SLOW.  What open with these arguments would find: fills up to max elements of
	 * `stride` bytes and returns how many there are.  Opens each device for a moment, keeps
	 * nothing.  A negative status: the arguments, as open.
	 */
	int32_t (*list)(const struct escrow_open_args *args, struct escrow_rail *rails,
			uint32_t max, uint32_t stride, struct escrow_error *error);
};

#ifdef __cplusplus
}
#endif
#endif
