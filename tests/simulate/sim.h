/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sim.h - one simulated run: up to three engines of the RDMA backend in one process, on softverbs in its
 * deterministic mode (docs/softverbs.md), a random host, a random adversary, and a judge.
 *
 * The judge knows nothing of the backend's ledger. It keeps its own book from what the host asked for and
 * what events told it, and holds against it every byte that the device touches, every native call and
 * the charges that the backend shows. What it checks is I1 to I10 of docs/simulate.md.
 */
#ifndef SIM_H
#define SIM_H

#include <inttypes.h>
#include <stdbool.h>

#include <escrow/backend.h>
#include <escrow/fence.h>

#define SIM_ENGINES 3u
#define SIM_AREAS 4u    /* of an engine */
#define SIM_AREA 16384u /* bytes */
#define SIM_LINE 64u    /* bytes that carry one set of tags, and one stamp */
#define SIM_LINES (SIM_AREA / SIM_LINE)
#define SIM_LINKS 64u
#define SIM_GRANTS 512u
#define SIM_REMOTES 512u
#define SIM_OPS 4096u
#define SIM_MESSAGES 1024u
#define SIM_MESSAGE 20000u /* bytes, at most: several pieces of the wire */
#define SIM_NONE UINT32_MAX
#define SIM_SGES 3u
#define SIM_SLICE 4096u /* the least that slice_bytes may be */
/* First word of each line that a WRITE carries; the second is the number of the op. */
#define SIM_STAMP 0x5eed57a3u

/* What the host has given away of a line, and how often. All zero: it is the host's alone. */
struct tags {
	uint16_t lent_read;  /* source of a WRITE */
	uint16_t lent_write; /* sink of a READ */
	uint16_t grant_read;
	uint16_t grant_write;
};

struct line {
	struct tags tags;
	uint32_t writer;  /* the op whose bytes landed here last; 0 = the host's */
	uint32_t version; /* counts landings */
};

enum thing_state { NOT_THERE, COMING, LIVE, ENDING, HELD, STUCK, ENDED };

struct engine;

struct area {
	uint8_t *bytes;
	uint64_t region; /* handle */
	enum thing_state state;
	struct line lines[SIM_LINES];
};

/* A slot of the simulation; the incarnations that pass through it follow each other. */
struct engine {
	struct escrow_engine *engine; /* NULL: closed and released */
	uint32_t slot;
	uint32_t incarnation;
	enum thing_state
		state; /* LIVE, ENDING (close was called), ENDED (CLOSED), STUCK (QUARANTINED) */
	bool failed;   /* DEVICE was told */
	bool quiesced;
	bool draining;
	/* Quiesced and drained, to be closed and opened anew: a hot swap. */
	bool swapping, drained;
	uint32_t drains; /* asked for, and not answered */
	/* It said E_AGAIN, and no ROOM has come since. */
	bool full;
	uint8_t identity[16];
	uint64_t seq;
	int32_t arrivals; /* MESSAGE events less what was received */
	/* The receipt from outside came before its end: it ends CLOSED, whatever was stuck. */
	bool fenced;
	/* Registrations that failed: what was made of them goes again, when the runner comes to it. */
	uint32_t ghosts;
	struct area areas[SIM_AREAS];
	/* What open itself had charged: control memory. */
	uint64_t base[16];
};

/* Two ends of one connection; side 0 invited, side 1 connected. */
struct link {
	/* A grant was revoked, an end disconnects or closes: ops on it may fail. */
	bool rough;
	struct {
		struct engine *engine;
		uint32_t incarnation;
		uint64_t peer;
		enum thing_state state;
		bool stuck;      /* PEER_DOWN said that something of it is quarantined */
		uint32_t drains; /* asked for, and not answered */
	} side[2];
};

struct grant {
	struct engine *owner;
	uint32_t incarnation;
	uint32_t link; /* SIM_NONE: an offer, to whoever is connected */
	uint32_t side; /* of the owner */
	uint32_t area;
	uint32_t line, lines;
	uint32_t rights;
	uint64_t handle;
	uint32_t key; /* of one of its windows, once it was exported */
	enum thing_state state;
};

struct remote {
	struct engine *engine;
	uint32_t incarnation;
	uint32_t grant; /* index */
	uint32_t link;
	uint32_t side; /* of the importer */
	uint64_t handle;
	enum thing_state state; /* COMING: an offer that was asked for */
};

struct piece {
	uint32_t area;
	uint32_t line, lines;
	uint64_t bytes;
};

struct op {
	struct engine *engine;
	uint32_t incarnation;
	uint32_t remote; /* index */
	uint64_t handle;
	uint64_t bytes;
	uint64_t deadline;
	uint32_t opcode;
	uint32_t line; /* of the grant's area, where it starts */
	uint32_t lines;
	uint32_t nsge;
	struct piece sge[SIM_SGES];
	uint64_t versions; /* of the lines it reads, when it was asked for */
	uint32_t landed;   /* fragments of it */
	uint32_t message;  /* that rides on it, or SIM_NONE */
	bool canceled;
	uint8_t effect; /* as it was told */
	enum thing_state state;
};

struct message {
	uint32_t link;
	uint32_t side; /* of the sender */
	uint32_t incarnation;
	uint32_t length;
	uint32_t op;            /* that it rides on, or 0 */
	enum thing_state state; /* LIVE: its end was not told */
	bool taken;             /* its end was, and said that the peer's engine has it */
	bool received;
};

/* What a run may do besides timing; chosen by the seed. */
#define SIM_FAIL 1u      /* native calls fail, with and without effect */
#define SIM_LIE 2u       /* destroy_qp says 0 and does nothing */
#define SIM_CQE 4u       /* completions are held, lost, doubled */
#define SIM_PORT 8u      /* ports go down and up */
#define SIM_LOSS 16u     /* packets are lost */
#define SIM_HOLD 32u     /* devices stop for a while */
#define SIM_KILL 64u     /* peers vanish */
#define SIM_FATAL 128u   /* devices die */
#define SIM_BUSY 256u    /* destroys are refused with EBUSY */
#define SIM_HOSTILE 512u /* peers use keys for what they were not given for */
#define SIM_QUEUE 2048u  /* completion queues break, and go on as if nothing had been */
#define SIM_WEAK 1024u   /* the device is one whose word on an end is not believed */

/* What was seen, for the summary. */
struct counts {
	uint64_t events, done, executed, returned_late, revoked, quarantined, closed, calls,
		accesses, sent, received, offers, ready, swaps, fenced, renewed;
};

struct sim {
	uint64_t seed;
	uint32_t step;
	uint32_t steps;
	uint32_t faults;
	uint32_t rails;
	bool renews; /* windows are soon worn, so that connections are renewed */
	bool winding_down;
	bool fenced; /* the devices have gone: what lives of them is nobody's */
	bool late;   /* engines in quarantine are kept, for the receipt from outside */
	struct engine *polling;
	struct engine engines[SIM_ENGINES];
	struct link links[SIM_LINKS];
	struct grant grants[SIM_GRANTS];
	struct remote remotes[SIM_REMOTES];
	struct op ops[SIM_OPS];
	struct message messages[SIM_MESSAGES];
	/* Incarnations that were released in quarantine. */
	uint8_t stuck[SIM_ENGINES * 32][16];
	uint32_t nstuck;
	uint64_t stuck_connections; /* of engines that were released in quarantine */
	uint32_t nengines, nlinks, ngrants, nremotes, nops, nmessages; /* op 0 is not used */
	struct counts n;
};

extern struct sim sim;
/* The backend's slots. */
extern const struct escrow_ops *sim_ops;
extern const struct escrow_fence *sim_fence;

/* ---- run.c -------------------------------------------------------------------------------- */
/* A rule is broken: ends the run. */
void sim_fail(const char *rule, const char *format, ...)
	__attribute__((format(printf, 2, 3), noreturn));
/* A line of the trace. */
void sim_trace(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* A number below `below`, by the seed and the step. */
uint32_t sim_pick(uint32_t below);
static inline bool sim_chance(uint32_t one_in)
{
	return sim_pick(one_in) == 0;
}

/* ---- world.c: memory, services of the host, and the judge of the device's accesses ------------------ */
extern const struct escrow_host world_host;
void world_start(void);
void world_areas(struct engine *e);
void world_tag(struct area *a, uint32_t line, uint32_t lines, struct tags add, int sign);
bool world_is_free(const struct area *a, uint32_t line, uint32_t lines);
bool world_is_lent(const struct area *a, uint32_t line, uint32_t lines);

/* ---- judge.c, charges.c -------------------------------------------------------------------------- */
/* Sum of the versions of the lines that an op is about. */
uint64_t judge_versions(const struct op *op);
/* Where it can be said, both sides of the op hold the same bytes. */
void judge_bytes(const struct op *op);
/* The engine's own account, by ESCROW_CHARGE_*. */
void judge_read_charges(const struct engine *e, uint64_t used[]);
void judge_event(struct engine *e, const struct escrow_event *ev);
/* After a poll that found no event: the charges are those of the book. */
void judge_charges(struct engine *e);
/* The native calls since the last time. */
void judge_calls(void);
/* No op is outstanding on a connection that nothing happened to. */
void judge_rest(void);
/* Everything that should have ended has. */
void judge_end(void);
/* Once the devices have gone: what is quarantined gets the receipt from outside; its events have been polled;
 * and so does what was released in quarantine. */
void judge_fence(struct engine *e);
/* To an engine, or to the owners of those that were released (NULL). */
void judge_tell(const struct engine *to, const uint8_t *identity, uint32_t receipt);
void judge_fence_early(struct engine *e);
void judge_fenced(struct engine *e);
void judge_fence_residue(void);

/* ---- offers.c: what is asked for in-band ----------------------------------------------------------------- */
/* How many grants, and bytes, an engine may have and must have for those who imported its offers. */
struct span {
	uint64_t least[2], most[2]; /* grants, bytes */
};
void offers_span(const struct engine *e, struct span *out);
void offers_event(struct engine *e, const struct escrow_event *ev);
/* Nothing is wrong and nothing happens: what was asked for has been answered. */
void offers_rest(void);
/* The bytes of an op land by an offer: its importer must still be there. */
void offers_check_landing(const struct op *op);

/* ---- message.c: org.escrow.notify/1 ------------------------------------------------------------------- */
void message_send(struct engine *e);
/* An op that was planned, with a message on it; what transfer answers. */
int32_t message_transfer(struct op *op, const struct escrow_op *out, uint64_t *handle);
/* All, or (now and then) some, of what has arrived. */
void message_receive(struct engine *e, bool all);
void message_event(struct engine *e, const struct escrow_event *ev);
/* The op that it rides on has ended. */
void message_op_ends(const struct op *op, const struct escrow_event *ev);
/* An end has gone: of its messages none is left that could still end. */
void message_peer_ends(const struct link *l, uint32_t side);
void message_rest(void);

/* ---- book.c: finding things in the book ------------------------------------------------------------- */
struct op *book_op(const struct engine *e, uint64_t handle);
struct grant *book_grant(const struct engine *e, uint64_t handle);
struct area *book_area(struct engine *e, uint64_t handle);
/* The end of a link that is this peer of the engine, or NULL; *side is the number of the end. */
struct link *book_peer(const struct engine *e, uint64_t peer, uint32_t *side);
/* A random thing of this kind that is of a living engine and in this state, or NULL. */
struct grant *book_any_grant(enum thing_state state);
struct remote *book_any_remote(enum thing_state state);
struct op *book_any_op(void);
/* The peer that an op is about: its link, and the number of the end of whoever asked for it. */
struct link *book_link(const struct op *op);
/* An end of a link that is up. */
struct link *book_any_end(const struct engine *e, uint32_t *side);
struct engine *book_any_engine(void);
/* Gives back, in the book, what an op or a grant had. */
void book_end_op(struct op *op);
void book_end_grant(struct grant *g);
struct tags book_grant_tags(const struct grant *g);

/* ---- lend.c: grants and what is made of them ---------------------------------------------------------- */
void lend_grant(struct engine *e);
void lend_import(struct engine *e);
void lend_revoke(struct engine *e);
void lend_forget(struct engine *e);

/* ---- act.c: the host ------------------------------------------------------------------------------- */
void act_random(void);
void act_transfer(struct engine *e);
/* What another thread of the host might do while the control runner is in a native call. */
void act_beside(const char *call);
void act_poll(struct engine *e);
void act_open(struct engine *e);
void act_close(struct engine *e, bool graceful);
void act_release(struct engine *e);
/* transfer or a message was refused: what it says is kept if it promises ROOM. */
void act_refused(struct engine *e, int32_t status);

/* ---- nature.c: the adversary ----------------------------------------------------------------------- */
void nature_random(void);
/* The runner of this engine is in a native call. */
void nature_beside(struct escrow_engine *e);
/* Nothing is broken any more. */
void nature_calm(void);

#endif
