/* SPDX-License-Identifier: BSD-2-Clause */
/* mock-ends.h - what the tests of the mock's native table share: ends of a connection. */
#ifndef MOCK_ENDS_H
#define MOCK_ENDS_H

#include <stdint.h>

#include "backends/mock/mock.h"

#define END_BYTES (256u * 1024u)
#define END_DEPTH 16u
#define END_GRANT 4096u /* bytes of the window, in the middle of the region */
#define END_AT 8192u    /* where it starts */

extern const struct escrow_host ends_host;
/* alloc of ends_host fails from this call on, counted down; 0 = never. */
extern _Atomic int ends_fail_after;

/* Set by a program that uses these functions outside of a Check test. */
extern bool ends_outside_check;

/* One engine's device with one of everything. */
struct end {
	struct native *n;
	struct native_context *c;
	struct native_lane *l;
	struct native_region *r;
	struct native_window *w;
	struct native_conn *q;
	uint8_t *bytes; /* END_BYTES, registered */
};

/* Opens with settings "mock.key=value mock.key=value" and makes all but q. */
void end_open(struct end *e, const char *settings, uint32_t cq_depth);
struct native_conn *end_conn(struct end *e);
/* Connects a.q to b.q, which are made here. */
void ends_connect(struct end *a, struct end *b);
void end_close(struct end *e);

/* A work request over bytes [at, at+length) of e's region. */
struct native_wr end_wr(struct end *e, enum native_opcode opcode, struct native_sge *sge,
			uint32_t at, uint32_t length);
/* Posts one and fails the test if it is not taken. */
void end_post(struct native_conn *q, struct native_wr *wr);
/* Polls the lane of e until it has given n completions. */
void end_wait(struct end *e, struct native_cqe *cqe, int n);
/* Posts one work request and returns how it ended. */
enum native_status end_do(struct end *e, struct native_wr *wr);
/* Binds e's window on q to [END_AT, END_AT + END_GRANT) with a key of this tag, and returns it. */
uint32_t end_bind(struct end *e, struct native_conn *q, uint32_t rights, uint8_t tag);
/* The next event of e, which must be of this kind. */
struct native_event end_event(struct end *e, enum native_event_kind kind);

#endif
