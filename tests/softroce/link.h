/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two RC queue pairs on the first rail of ESCROW_TEST_RAILS, connected to each other by hand, for
 * programs that ask the kernel's verbs something. Whatever is not the question itself must work:
 * these functions fail the Check test where it does not.
 */
#ifndef LINK_H
#define LINK_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LINK_INLINE 64u /* bytes that a request may bring along */

/* The device of a rail, opened. */
struct device {
	struct ibv_context *context;
	struct ibv_pd *pd;
	uint8_t port;
	uint8_t gid_index;
	enum ibv_mtu
		mtu; /* of connections: 1024, so that little is many packets, unless it is set */
	union ibv_gid gid;
};

/* The requester posts WRITEs to the responder, which has 'depth' slots for binds. */
struct link {
	struct device *device;
	struct ibv_comp_channel *channel;
	struct ibv_cq *requester_cq, *responder_cq;
	struct ibv_qp *requester, *responder;
};

/* Page-aligned memory and its registration. */
struct memory {
	unsigned char *bytes;
	size_t size;
	struct ibv_mr *mr;
};

/* A Type-2 window and the key under which it is bound now. */
struct window {
	struct ibv_mw *mw;
	uint32_t rkey;
};

/* What this machine calls its first rail; NULL: it has none. */
const char *device_rail(void);
void device_open(struct device *device);
void device_close(struct device *device);

/* A queue pair in RESET, on 'cq' in both directions. */
struct ibv_qp *device_qp(const struct device *device, struct ibv_cq *cq, uint32_t depth);

void link_open(struct link *link, struct device *device, uint32_t depth);
/*
 * The half of a link whose other half is another process: one queue pair, which is both requester and
 * responder here. link_join() connects it to the queue pair of that number.
 */
void link_open_half(struct link *link, struct device *device, uint32_t depth);
void link_join(struct link *link, uint32_t peer);
/* Fails the test if any object is not released at the first attempt. */
void link_close(struct link *link);
void link_modify(struct ibv_qp *qp, enum ibv_qp_state state);
enum ibv_qp_state link_state(struct ibv_qp *qp);

void memory_open(struct memory *memory, const struct device *device, size_t size, int access);
void memory_close(struct memory *memory);
/* Whether all of the 'size' bytes from 'offset' on are 'value'. */
bool memory_is(const struct memory *memory, size_t offset, size_t size, unsigned char value);

/*
 * Posts a signalled WRITE of 'size' bytes from the start of 'source' to the address 'target' plus
 * 'offset' at the peer; the offset is also the work request's id. Returns what ibv_post_send() returns.
 */
struct write {
	const struct memory *source;
	uint64_t target, offset;
	uint32_t size, rkey;
};
int link_write(struct link *link, const struct write *write);

/* Binds the window to all of 'memory', at the responder, under a new key, and waits for the CQE. */
void link_bind(struct link *link, struct window *window, const struct memory *memory);
/* Takes the window's key back by LOCAL_INV at the responder, and waits for the CQE. */
void link_invalidate(struct link *link, const struct window *window);

/* Waits up to half a minute for the next completion; false: none came. */
bool link_next(struct link *link, struct ibv_cq *cq, struct ibv_wc *wc);

#endif
