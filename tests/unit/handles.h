/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * handles.h - an engine that is connected to itself, and what the tests of its handles make with it.  Included by such a
 * test program once: its state is the program's.
 */
#ifndef TEST_ENGINE_HANDLES_H
#define TEST_ENGINE_HANDLES_H

#include <stdlib.h>
#include <string.h>

#include "tests/lib/testing.h"
#include "tests/unit/engine-kit.h"

#define POLLS 20000

static struct kit k;   /* it is connected to itself: k.peer is the end that asked */
static uint64_t other; /* and this the end that was asked */

static inline int32_t poll_one(struct escrow_event *ev)
{
	return KIT_OPS->poll(k.engine, ev, 1, sizeof(*ev), 0);
}

/* The next event, which is of this kind. */
static inline struct escrow_event next(uint16_t kind)
{
	struct escrow_event ev;

	for (int i = 0; i < POLLS; i++) {
		if (!poll_one(&ev))
			continue;
		ck_assert_uint_eq(ev.kind, kind);
		return ev;
	}
	ck_abort_msg("no event of kind %u", kind);
	return (struct escrow_event){0};
}

/* What is under way comes to its end, and the host is told of nothing. */
static inline void settle(void)
{
	struct escrow_event ev;

	for (int i = 0; i < 300; i++)
		ck_assert_int_eq(KIT_OPS->poll(k.engine, &ev, 0, sizeof(ev), 0), 0);
}

static inline uint64_t connect_one(void)
{
	struct escrow_invite_args invite = {.size = sizeof(invite), .peer_name = "me"};
	struct escrow_peer_args args = {.size = sizeof(args), .peer_name = "me"};
	struct escrow_error error = {.size = sizeof(error)};
	uint8_t buf[1024];
	uint64_t len = sizeof(buf), peer = 0;

	ck_assert_int_eq(KIT_OPS->invite(k.engine, &invite, buf, &len), ESCROW_OK);
	args.invitation = buf;
	args.invitation_len = len;
	ck_assert_msg(KIT_OPS->connect(k.engine, &args, &peer, &error) == ESCROW_IN_PROGRESS, "%s",
		      error.text);
	return peer;
}

static inline void start(const char *more)
{
	const char *settings[] = {"test.faults=1", "drain_ms=100", "control_thread=0", more, NULL};

	kit_settings = settings;
	kit_start(&k, "k");
	kit_settings = NULL;
	k.peer = connect_one();
	for (int i = 0; i < 2; i++) {
		uint64_t peer = next(ESCROW_EV_PEER_UP).object;

		other = peer == k.peer ? other : peer;
	}
}

static inline void end(void)
{
	kit_close(&k, NULL, false);
	ck_assert_uint_eq(kit_allocs, 0);
}

/* ---- What is made ---- */
static inline escrow_status grant_of(uint64_t peer, uint64_t region, uint64_t *grant)
{
	struct escrow_grant_args args = {.size = sizeof(args),
					 .rights = ESCROW_MAY_READ,
					 .peer = peer,
					 .region = region,
					 .length = 64};

	return KIT_OPS->grant(k.engine, &args, grant, NULL);
}

static inline escrow_status export_it(uint64_t grant)
{
	uint8_t buf[4096];
	uint64_t len = sizeof(buf);

	return KIT_OPS->export_grant(k.engine, grant, buf, &len);
}

static inline escrow_status info_of(uint64_t peer, uint64_t *user)
{
	struct escrow_peer_info info = {.size = sizeof(info)};
	escrow_status st = KIT_OPS->peer_info(k.engine, peer, &info);

	*user = info.user;
	return st;
}

static inline uint64_t register_one(void)
{
	struct escrow_region_args args = {.size = sizeof(args),
					  .addr = k.memory,
					  .length = 4096,
					  .memory_kind = ESCROW_MEMORY_HOST,
					  .dmabuf_fd = -1};
	uint64_t region = 0;

	ck_assert_int_eq(KIT_OPS->register_memory(k.engine, &args, &region, NULL), ESCROW_OK);
	return region;
}

#endif
