/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rdma-kit.h - engines over RDMA devices in one process, with a real clock and their control
 * threads, for tests that run where a device is (the guest of docs/softroce.md, softverbs, an RNIC).
 */
#ifndef RDMA_KIT_H
#define RDMA_KIT_H

#include <stdbool.h>
#include <stdint.h>

#include <escrow/backend.h>

const struct escrow_backend *ends_backend(void);
#define OPS (ends_backend()->ops)

#define END_BYTES 262144u
#define ENDS_MAX 8

struct ibv_context;

struct end {
	struct escrow_engine *engine;
	uint8_t *memory; /* END_BYTES */
	uint64_t region;
	struct escrow_event seen[256]; /* not asked for yet, oldest first */
	uint32_t nseen;
	uint64_t seq;
};

/* Can an engine be opened here at all?  If not, *why says what is missing. */
bool ends_possible(char *why, uint32_t size);
/* Are the verbs those of softverbs? */
bool ends_double(void);
/* The addresses of the first rails, as text; how many rails there are. */
uint32_t ends_rails(char (*addresses)[64], uint32_t max);
/* On softverbs, a device that touches these bytes ends the program; and wait until it is idle. */
void double_forbid(const void *addr, uint64_t length);
void double_permit(const void *addr, uint64_t length);
void double_settle(void);
/* On softverbs, stop what a device sends, or let it go on; false: elsewhere.  Lose what is sent on a rail. */
bool double_hold(struct ibv_context *device, int on);
void double_blackhole(int rail, int on);
/* "key=value" settings ended by NULL; what open said. */
escrow_status end_try(struct end *e, const char *const *settings, struct escrow_error *error);
/* Opens, and registers memory filled with `fill`. */
void end_open(struct end *e, uint8_t fill, const char *const *settings);
/* Polls one, and does not wait; how many events came. */
int32_t end_poll(struct end *e);
/* Polls all once, and waits a little if none had anything. */
void ends_turn(void);
/* The same with the caller's END_BYTES of memory, which end_close() gives to free(). */
void end_open_on(struct end *e, uint8_t *memory, const char *const *settings);
/* Polls every open end until `e` has an event of this kind; fails the test after two minutes. */
struct escrow_event end_wait(struct end *e, uint16_t kind);
/* The same, of this object. */
struct escrow_event end_wait_of(struct end *e, uint16_t kind, uint64_t object);

/* Has it an event of this kind, not asked for yet? */
bool end_has_seen(const struct end *e, uint16_t kind);
/* Polls until the counter of org.escrow.counters/1 is `value` at least; fails after two minutes. */
void end_until(struct end *e, const char *counter, uint64_t value);
uint64_t end_counter(struct end *e, const char *name);

/* Both ends of a new connection, each with its name for the other. */
void ends_connect(struct end *passive, struct end *active, uint64_t *by_passive,
		  uint64_t *by_active);
uint64_t end_invite(struct end *e, const char *name, uint8_t *buf, uint64_t size);
uint64_t end_connect(struct end *e, const char *name, const uint8_t *buf, uint64_t len);
/* Grants and exports; the length of what is in buf. */
uint64_t end_grant(struct end *e, uint64_t peer, uint64_t offset, uint64_t length, uint32_t rights,
		   uint8_t *buf, uint64_t size, uint64_t *grant);
uint64_t end_import(struct end *e, uint64_t peer, const uint8_t *buf, uint64_t len);
/* One op under way; its handle. */
uint64_t end_submit(struct end *e, uint64_t remote, uint32_t opcode, uint64_t at,
		    uint64_t remote_at, uint64_t length);
/* One op at the beginning of both, or 0: it was refused. */
uint64_t end_try_submit(struct end *e, uint64_t remote, uint32_t opcode, uint64_t length);
/* One op, waited for: its OP_DONE. */
struct escrow_event end_move(struct end *e, uint64_t remote, uint32_t opcode, uint64_t at,
			     uint64_t remote_at, uint64_t length);
/* Asks a rail of it for a connection as no engine would; 0, or the errno. */
int end_knock(struct end *e, uint32_t rail, const void *data, uint8_t len);
/* What is charged to the engine, of this kind. */
uint64_t end_used(struct end *e, uint32_t kind);
/* Polls until nothing of this kind is charged to the engine. */
void end_until_unused(struct end *e, uint32_t kind);
/* Every charge is back. */
void end_is_clean(struct end *e);
void end_close(struct end *e);
/* Closes, and must end in quarantine; how many bytes are withheld. Its memory is never freed. */
uint64_t end_quarantine(struct end *e);
/* One that was closed, and whose CLOSED has been seen. */
void end_release(struct end *e);

/* A fault plan, and how often a step was taken; opened with test.faults=1. */
void end_plan(struct end *e, const char *plan);
int64_t end_calls(struct end *e, uint32_t step);
/* Polls everybody for a while; no event of this kind may come. */
void end_never(struct end *e, uint16_t kind);
/* Has an event of this kind come?  It is taken. */
bool end_seen(struct end *e, uint16_t kind, uint64_t object, struct escrow_event *out);
/* Under the engine: the first queue pair to this peer. */
struct ibv_qp *end_qp(struct end *e, uint64_t peer);
/* From now on that queue pair gives up soon: where the retries are to run out, and not before. */
void end_give_up_soon(struct end *e, uint64_t peer);

#endif
