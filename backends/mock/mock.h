/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * mock.h - the mock device: what its files share.
 *
 * The mock is a NIC in memory.  It moves real bytes, but only when it is run, and it is run by
 * whoever polls a lane of either end.  Where hardware may do several things, the nastier one is
 * the default: keys are recycled last in first out, bytes are touched until the completion is out,
 * a refused access puts both ends in error.
 *
 * LOCKS.  One: the fabric's, for all devices of the process, which guards every member below that
 * is not marked otherwise.  Control steps wait for it; data steps only try it, and where they find
 * it taken, whoever has it is running a device.  The rings between the two sides have one writer
 * and one reader: a lane's completions, a connection's send queue and its receive queue.
 */
#ifndef MOCK_H
#define MOCK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "backends/engine/native.h"

#define MOCK_MTU 4096u
#define MOCK_MAX_BYTES (UINT64_C(1) << 40)
#define MOCK_MAX_MESSAGE (UINT64_C(1) << 30)
#define MOCK_MAX_WINDOW (UINT64_C(1) << 31)  /* as mlx5: a window is at most 2 GiB */
#define MOCK_MAX_OBJECTS (UINT32_C(1) << 20) /* regions and windows of one context */
#define MOCK_MAX_DEPTH 16384u
#define MOCK_MAX_CQ 262144u
#define MOCK_MAX_INLINE 256u
#define MOCK_MAX_CONNS 1024u /* of one context */
#define MOCK_BURST 64u       /* work requests of one connection that one run of it executes */
#define MOCK_STALE 16u       /* completions kept to be told again (cqe=stale) */
#define MOCK_KNOCKS 32u      /* sockets that have connected and not yet said what they want */

/* One piece of news, embedded in the object that it is about, so that telling it cannot fail. */
struct mock_news {
	struct mock_news *next;
	bool queued;
	struct native_event event;
};

/* The seam has addresses as numbers. */
static inline uint8_t *mock_pointer(uint64_t addr)
{
	uint8_t *p;

	_Static_assert(sizeof(p) == sizeof(addr), "LP64 only");
	memcpy(&p, &addr, sizeof(p));
	return p;
}

/* ---- Memory -------------------------------------------------------------------------------- */
enum mock_slot_kind { MOCK_FREE, MOCK_REGION, MOCK_WINDOW };

/* One entry of a context's key table.  A key is its index << 8 | tag. */
struct mock_slot {
	enum mock_slot_kind kind;
	uint32_t next_free;
	void *object;
};

struct native_region {
	struct native_context *context;
	uint64_t serial; /* never reused, unlike the key */
	uint64_t addr;
	uint64_t length;
	uint32_t index;
	uint32_t windows; /* bound on it */
};

struct native_window {
	struct native_context *context;
	struct native_region *region; /* bound on it, or NULL: free */
	uint64_t serial;
	uint64_t conn; /* serial of the one connection it is bound to */
	uint64_t addr;
	uint64_t length;
	uint32_t rights;
	uint32_t index;
	_Atomic uint32_t key;
};

/* ---- Work ---------------------------------------------------------------------------------- */
/* A local range: the region by its key, because it may be deregistered while work is queued. */
struct mock_sge {
	uint64_t addr;
	uint32_t length;
	uint32_t key;
};

enum mock_stage {
	MOCK_QUEUED,
	MOCK_WAITING, /* sent to another process, the answer is due */
	MOCK_DONE,    /* executed, or failed; its completion is due */
};

/* A work request, in its slot of a send queue from post until its completion is out. */
struct mock_wr {
	uint64_t id;
	enum native_opcode opcode;
	enum mock_stage stage;
	enum native_status status;
	uint32_t flags;
	uint32_t nsge;
	uint32_t rkey;
	uint32_t age;   /* runs since it was executed */
	uint32_t rnr;   /* times that no receive was there */
	bool withheld;  /* cqe=hold */
	uint64_t total; /* bytes */
	uint64_t done;  /* bytes moved or sent */
	uint64_t remote;
	uint64_t addr;   /* BIND */
	uint64_t length; /* BIND */
	uint32_t rights; /* BIND */
	uint32_t window; /* BIND: index and serial of the window; the region's key */
	uint64_t window_serial;
	uint32_t region;
	struct mock_sge *sge;
	uint8_t *inline_bytes;
};

struct mock_receive {
	uint64_t id;
	struct mock_sge sge;
};

enum mock_state { MOCK_RESET, MOCK_INIT, MOCK_RTS, MOCK_ERR };

/* A connection's socket, if its other end is in another process. */
struct mock_link {
	int fd; /* -1: none */
	bool connecting;
	bool established; /* has carried an accept */
	bool polled;      /* is in the epoll set */
	bool want_out;    /* the socket was full */
	/* What we owe the other end: an answer, or the rest of a READ. */
	uint32_t reply; /* enum packet_kind, 0 = nothing */
	uint32_t reply_status;
	uint32_t read_key;
	uint64_t read_addr, read_total, read_done;
	/* The request that is coming in, by packets. */
	uint64_t rx_done;
	bool rx_discard; /* the rest of a SEND for which no receive was there */
};

enum mock_conn_news { NEWS_CONNECT, NEWS_DISCONNECTED, NEWS_ERROR, MOCK_CONN_NEWS };

/* A queue pair. */
struct native_conn {
	struct native *native;
	struct native_context *context;
	struct native_lane *lane;
	struct native_conn *prev, *next; /* of the lane */
	struct native_conn *peer;        /* the other end, if it is in this process */
	struct native_request *request;  /* ours, unanswered, in this process */
	void *user;                      /* constant */
	uint64_t serial;
	_Atomic int state; /* enum mock_state; written under the lock */
	bool started;      /* connect or accept was called */
	bool cut;          /* peer=kill: nothing goes out and nothing comes in */
	uint32_t rail;
	uint32_t sq_depth, rq_depth, max_sge, max_inline; /* constant */
	uint32_t sq_mask, rq_mask; /* of the rings, which are powers of two */
	struct mock_wr *sq;
	struct mock_receive *rq;
	/* Send queue: tail is the poster's; [head, exec) owe a completion, [exec, tail) wait. */
	_Atomic uint32_t sq_tail;
	_Atomic uint32_t sq_free; /* slots up to here may be used again */
	uint32_t sq_head, sq_exec;
	/* Receive queue: tail is the poster's. */
	_Atomic uint32_t rq_tail;
	_Atomic uint32_t rq_head;
	struct mock_link link;
	struct mock_news news[MOCK_CONN_NEWS];
};

/* ---- Completions --------------------------------------------------------------------------- */
enum { MOCK_CQE_LIVE, MOCK_CQE_TAKEN, MOCK_CQE_DELETED };

struct mock_cqe {
	struct native_cqe cqe;
	uint64_t conn; /* serial: RESET and destroy delete what has not been polled */
	_Atomic int state;
	bool counted; /* uses the depth that was asked for; a planned duplicate does not */
};

struct native_lane {
	struct native *native;
	struct native_context *context;
	struct native_lane *next; /* of the native */
	struct native_conn *conns;
	struct mock_cqe *cq; /* `room` entries; NULL: no queue yet */
	uint32_t depth, room;
	_Atomic uint32_t cq_tail; /* the device's */
	_Atomic uint32_t cq_head; /* the poller's */
	_Atomic uint32_t live;    /* counted entries in the ring */
	_Atomic bool broken;      /* overrun */
	_Atomic bool armed;
	int fd;                              /* eventfd: the channel */
	struct native_cqe stale[MOCK_STALE]; /* to be told again */
	uint32_t nstale;
	uint32_t stale_wait; /* runs until the next of them */
	struct mock_news news;
};

/* ---- Devices ------------------------------------------------------------------------------- */
struct native_context {
	struct native *native;
	uint32_t index;
	bool open;
	bool pd;
	struct mock_slot *slots;
	uint32_t nslots;
	uint32_t free; /* last freed first; 0 = none */
	uint32_t used; /* slots */
	uint32_t nlanes;
	uint32_t nconns;
	struct mock_news news;
};

/* A connection request on the passive side, from its arrival to the answer. */
struct native_request {
	struct native *native;
	struct native_request *next;
	struct native_conn *from; /* in this process; NULL: it is gone */
	int fd;                   /* from another process, else -1 */
	struct mock_news news;
};

/* Items of a fault plan that are in force: how many completions each still concerns. */
struct mock_faults {
	bool nic_held;
	uint64_t hold, drop, dup, stale;
};

struct native {
	const struct escrow_host *host;
	struct native *next; /* of the fabric */
	uint8_t incarnation[16];
	/* configuration, constant */
	uint32_t nrails;
	uint32_t ncontexts;
	uint32_t delay;
	uint32_t rnr;
	bool random;
	bool may_thread;
	uint64_t dice;
	struct native_context contexts[NATIVE_MAX_CONTEXTS];
	uint32_t nopen;
	struct native_lane *lanes;
	struct native_request *requests;
	struct mock_faults faults;
	bool fatal;
	/* news */
	struct mock_news *news_first;
	struct mock_news *news_last;
	_Atomic uint32_t nnews;
	int epoll_fd; /* what event_fd is: wake_fd and the sockets that have no thread */
	int wake_fd;
	/* other processes */
	int listen_fd;
	int knocks[MOCK_KNOCKS];
	uint32_t nknocks;
	uint32_t looked; /* calls of next_event; its caller's */
	uint8_t *packet; /* room for one, in or out */
	bool threaded;   /* the sockets of connections are the thread's */
	bool stop;
	pthread_t thread;
	int thread_epoll;
	int thread_wake;
};

/* ---- fabric.c: the lock, the devices of this process, memory for their objects -------------- */
void fabric_lock(void);
bool fabric_trylock(void);
void fabric_unlock(void);
uint64_t fabric_serial(void); /* lock held; never 0 */
void fabric_add(struct native *n);
void fabric_remove(struct native *n);
struct native *fabric_find(const uint8_t *incarnation); /* lock held */
void *mock_alloc(struct native *n, uint64_t bytes);     /* zeroed, or NULL */
void mock_free(struct native *n, void *p);
uint32_t mock_dice(struct native *n, uint32_t sides); /* lock held; 0..sides-1 */

/* ---- news.c --------------------------------------------------------------------------------- */
void news_tell(struct native *n, struct mock_news *news); /* lock held; once until taken */
void news_forget(struct native *n, struct mock_news *news);
void news_of_conn(struct native_conn *c, enum mock_conn_news which, enum native_event_kind kind,
		  int error);
int mock_next_event(struct native *n, struct native_event *event);
int mock_event_fd(struct native *n);

/* ---- lane.c --------------------------------------------------------------------------------- */
int mock_create_channel(struct native_context *c, struct native_lane **out);
int mock_create_cq(struct native_lane *l, uint32_t depth);
int mock_destroy_cq(struct native_lane *l);
int mock_destroy_channel(struct native_lane *l);
int mock_poll_cq(struct native_lane *l, struct native_cqe *cqe, int max);
int mock_arm_cq(struct native_lane *l);
int mock_lane_fd(struct native_lane *l);
int mock_take_wakeups(struct native_lane *l);
void lane_push(struct native_lane *l, const struct native_cqe *cqe, uint64_t conn, bool counted);
void lane_delete(struct native_lane *l, uint64_t conn); /* its completions not yet polled */
void lane_kick(struct native_lane *l);                  /* any thread: wakes who has armed it */
void lane_free(struct native_lane *l);

/* ---- memory.c ------------------------------------------------------------------------------- */
int mock_register_region(struct native_context *c, const struct escrow_region_args *args,
			 struct native_region **out, struct escrow_error *error);
int mock_deregister_region(struct native_region *r);
uint32_t mock_region_key(const struct native_region *r);
int mock_alloc_window(struct native_context *c, struct native_window **out);
int mock_dealloc_window(struct native_window *w);
uint32_t mock_window_key(const struct native_window *w);
/* Lock held.  Where a local range is, or NULL if its region does not cover it (any more). */
uint8_t *memory_local(struct native_context *c, const struct mock_sge *sge);
/* Lock held, at the moment of the access: the owner's gate. */
uint8_t *memory_remote(struct native_conn *owner, uint32_t rkey, uint64_t addr, uint64_t length,
		       uint32_t right);
enum native_status memory_bind(struct native_conn *c, const struct mock_wr *wr);
enum native_status memory_invalidate(struct native_conn *c, uint32_t rkey);
void memory_free(struct native_context *c); /* whatever is left */

/* ---- conn.c --------------------------------------------------------------------------------- */
int mock_create_conn(struct native_lane *l, const struct native_conn_args *args,
		     struct native_conn **out);
void *mock_conn_user(const struct native_conn *c);
int mock_conn_err(struct native_conn *c);
int mock_conn_reset(struct native_conn *c);
int mock_destroy_conn(struct native_conn *c);
int mock_post(struct native_conn *c, struct native_wr *wr, uint32_t n, uint32_t *posted);
int mock_post_recv(struct native_conn *c, uint64_t id, struct native_region *region, uint64_t addr,
		   uint32_t length);
void conn_fail(struct native_conn *c); /* lock held: to ERR */
void conn_free(struct native_conn *c); /* lock not held; taken out of its lane before */
void conn_unlink(struct native_conn *c);
struct mock_wr *conn_wr(struct native_conn *c, uint32_t position);

/* ---- run.c: the device at work; lock held ---------------------------------------------------- */
void run_lane(struct native_lane *l);
void run_conn(struct native_conn *c);
bool run_pending(struct native_lane *l); /* would another run_lane get on with something? */
/* Where the bytes of a work request lie, from `offset` on: *length of them.  NULL: its region has
 * gone. */
uint8_t *run_local(struct native_conn *c, const struct mock_wr *wr, uint64_t offset,
		   uint64_t *length);
/* The receive for a SEND of `total` bytes to c: OK, RNR, or REMOTE and c is in error.  It stays in
 * the queue until run_received. */
enum native_status run_receive(struct native_conn *c, uint64_t total, uint8_t **to);
void run_received(struct native_conn *c, uint64_t total);
/* A refused access puts the owner's end in error too (RC). */
void run_refused(struct native_conn *owner);

/* ---- meet.c --------------------------------------------------------------------------------- */
int mock_connect(struct native_conn *c, const uint8_t *address, const void *data, uint32_t len);
int mock_accept(struct native_conn *c, struct native_request *r, const void *data, uint32_t len);
int mock_reject(struct native *n, struct native_request *r, const void *data, uint32_t len);
int mock_disconnect(struct native_conn *c);
void meet_address(const struct native *n, uint32_t rail, uint8_t *address);
/* Lock held.  The other end is told and forgotten. */
void meet_part(struct native_conn *c);
/* Lock held.  A request that came by a socket; NULL: no memory. */
struct native_request *meet_request(struct native *n, int fd, uint32_t rail, const void *data,
				    uint32_t len);
void meet_forget(struct native_request *r); /* unlinks, closes and frees */

/* ---- link.c: the far end is in another process; lock held ------------------------------------ */
int link_connect(struct native_conn *c, const uint8_t *incarnation, uint32_t rail, const void *data,
		 uint32_t len);
int link_accept(struct native_conn *c, int fd, const void *data, uint32_t len);
void link_reject(struct native *n, int fd, const void *data, uint32_t len);
void link_goodbye(struct native_conn *c);
void link_close(struct native_conn *c);
/* Gets on with a work request; true: its stage is DONE. */
bool link_execute(struct native_conn *c, struct mock_wr *wr);
void link_serve(struct native_conn *c); /* takes what has come, sends what is owed */

/* ---- socket.c: listening, knocks, the thread ------------------------------------------------- */
int socket_listen(struct native *n);
void socket_shut(struct native *n);
int socket_dial(const uint8_t *incarnation); /* a descriptor, or -errno */
void socket_look(struct native *n);          /* [ctrl], lock not held: who has come? */
/* Lock held: (not) watch a connection's socket, according to its state. */
void socket_watch(struct native_conn *c);
void socket_unwatch(struct native_conn *c);
void socket_start_thread(struct native *n);
void socket_stop_thread(struct native *n); /* lock not held */

/* ---- fault.c -------------------------------------------------------------------------------- */
int mock_fault(struct native *n, const char *item);
/* Lock held: is the completion of wr withheld? */
bool fault_withholds(struct native *n, struct mock_wr *wr);
/* Lock held: tells the completion of c, as often as the plan says. */
void fault_complete(struct native_conn *c, const struct native_cqe *cqe);
/* Lock held, at each run of a lane: what is to come again comes now and then. */
void fault_repeat(struct native_lane *l);

/* ---- native.c ------------------------------------------------------------------------------- */
extern const struct native_ops mock_native;

/* It has a thread as soon as an engine of another process is connected. */
#define MOCK_CAPS (ESCROW_CAP_REMOTE | ESCROW_CAP_THREADS)

#define MOCK_OPTIONS                                                                               \
	{"mock.rails", "2", "how many rails there are: 1..16"},                                    \
		{"mock.contexts", "1", "how many devices carry them: 1..16, at most mock.rails"},  \
		{"mock.delay", "0",                                                                \
		 "polls between the access to memory and its completion: 0..1000000"},             \
		{"mock.order", "fifo",                                                             \
		 "how connections take turns: fifo, or random and by parts"},                      \
		{"mock.seed", "1", "of mock.order=random: 1..2^64-1"},                             \
		{"mock.rnr", "4096", "polls that a message waits for a receive: 0..1000000"},      \
		{"mock.thread", "1",                                                               \
		 "0 or 1: serve other processes by a thread, while the host sleeps"},              \
		{"mock.fail_open", "0", "make open fail with this errno: 0 (do not)..4095"},

#endif
