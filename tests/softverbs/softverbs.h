/* SPDX-License-Identifier: BSD-2-Clause */
/* The control interface of softverbs, for tests. A program that may also run on the real libraries
 * finds these functions by dlsym(RTLD_DEFAULT, ...). All of them may be called from any thread. */
#ifndef SOFTVERBS_H
#define SOFTVERBS_H

#include <stddef.h>
#include <stdint.h>

struct ibv_context;
struct ibv_cq;
struct ibv_qp;

/* What becomes of one call. */
enum softverbs_verdict {
	SOFTVERBS_OK,
	/* Says success and does nothing (what mlx5 does after a failed DESTROY_QP command). */
	SOFTVERBS_OK_LIE,
	/* Answers with the errno and does nothing; the object stays usable (EBUSY, EINVAL). */
	SOFTVERBS_REFUSED,
	/* Answers with the errno and does nothing; the handle may not be used again. */
	SOFTVERBS_FAIL_NO_EFFECT,
	/* Does it all, and answers with the errno all the same. */
	SOFTVERBS_FAIL_EFFECT,
};

/* The 'nth' call of 'call' from now on (1 is the next one; 0 is every one) gets 'verdict' and
 * 'errnum'. 'call' is the verb without its prefix: "destroy_qp", "modify_qp", "reg_mr", "post_send".
 * Returns 0, or -1 if the table is full. */
int softverbs_script(const char *call, unsigned int nth, enum softverbs_verdict verdict,
		     int errnum);
/* Forgets all that softverbs_script() was told. */
void softverbs_script_clear(void);

/* Completions of the queue pair from now on: held back until softverbs_cqe_release(), dropped, or
 * given twice. 'count' completions are treated so, after 'skip' that are not; 0 means all that follow.
 * The work requests of a held completion stay unfinished: their memory is still touched. */
enum softverbs_cqe_mode {
	SOFTVERBS_CQE_PASS,
	SOFTVERBS_CQE_HOLD,
	SOFTVERBS_CQE_DROP,
	SOFTVERBS_CQE_TWICE
};
void softverbs_cqe(struct ibv_qp *qp, enum softverbs_cqe_mode mode, unsigned int skip,
		   unsigned int count);
void softverbs_cqe_release(struct ibv_qp *qp);

/* Says that the bytes are the host's alone from now on: a device that writes there, or with 'reads_too'
 * reads there, ends the program with a message. softverbs_permit() takes back what one call of
 * softverbs_forbid() with the same range said. Both return 0, or -1 (no memory; no such range). */
int softverbs_forbid(const void *addr, size_t length, int reads_too);
int softverbs_permit(const void *addr, size_t length);

/* One access of the device to registered memory, told just before it happens: through a local key, or
 * ('remote') a peer's. 'bytes' is what a peer's WRITE is about to put there; it is NULL in what is told of
 * the whole range of a request, which comes before. 'fn' is called with softverbs' lock held and may call
 * nothing of softverbs. NULL: nobody. */
struct softverbs_access {
	const void *addr;
	size_t length;
	const void *bytes;
	int writes;
	int remote;
};
typedef void (*softverbs_access_fn)(const struct softverbs_access *access);
void softverbs_observe(softverbs_access_fn fn);

/* Stops what the queue pairs of a context send before their next access to memory, or lets it go on.
 * Nothing times out meanwhile; what others ask of the context's memory is done. */
void softverbs_hold(struct ibv_context *context, int on);
/* Ends the devices of those that the queue pairs of a context talk to, as far as they are in this process:
 * their queue pairs vanish without a word. */
void softverbs_kill_peers(struct ibv_context *context);
/* Removes rail 'rail' as an unplugged device: every open context gets DEVICE_FATAL, its queue pairs
 * stop and its keys die, creating and modifying answer EIO. Destroying answers 0 (a current kernel), or
 * EIO at entry (personality old-kernel). */
void softverbs_remove(int rail);
/* Raises an asynchronous event (enum ibv_event_type) for a queue pair, a completion queue, or (both
 * NULL) the port. DEVICE_FATAL also makes the context fatal, and CQ_ERR breaks the queue: ibv_poll_cq answers -1. */
void softverbs_event(struct ibv_context *context, int type, struct ibv_qp *qp, struct ibv_cq *cq);
/* Takes port 1 of rail 'rail' down (PORT_ERR; nothing passes) or up (PORT_ACTIVE). */
void softverbs_port(int rail, int up);
/* Takes the IPv4 address of rail 'rail' out of its GID table, or puts it back; GID_CHANGE. Without it nothing that
 * is sent arrives, and the connection manager does not know the rail. */
void softverbs_gid(int rail, int there);
/* The GID table of rail 'rail' is turned around, and begins with 'first' free entries: addresses are not where they
 * were. */
void softverbs_turn_gids(int rail, int first);
/* Port 1 of rail 'rail' has this MTU (enum ibv_mtu), and its device takes so many READs of a queue pair each way. */
void softverbs_limits(int rail, int mtu, int rd_atomic);
/* The table of partition keys of rail 'rail', at most 8; it is one of 0xffff alone at first. Queue pairs use them
 * as they find them when they are made: what they send is not held to a partition. */
void softverbs_pkeys(int rail, const uint16_t *keys, int count);
/* Loses every packet that this process sends on the rail (no event tells), or stops doing so. */
void softverbs_blackhole(int rail, int on);

/* One native call, as it was recorded. */
struct softverbs_call {
	/* Counts from 1 in this process. */
	uint64_t seq;
	char name[24];
	/* The handle's address, and its number. */
	const void *handle;
	uint32_t id;
	/* What the call answered: its return value (1 for a pointer that is not NULL) and errno. */
	int rc;
	int errnum;
};
/* Copies the recorded calls that follow 'after' (0: all that are still kept), oldest first. Returns
 * how many were copied, at most 'max'. */
size_t softverbs_log(uint64_t after, struct softverbs_call *out, size_t max);
/* Deterministic mode, for programs of one thread; before anything is opened, and for good. The device
 * then has no thread: it makes its turns at the start of calls, inside those that wait, and in
 * softverbs_step(). Its clock is a number that calls, waiting and softverbs_pass() move on. All it chooses,
 * adversary or not, comes from 'seed', so the same calls get the same answers. A call that would wait for
 * ever ends the program. SOFTVERBS_DIR must be a folder of this process's own. */
void softverbs_deterministic(uint64_t seed);
/* One turn: a queue pair's share, or a packet that arrives. Returns 0 if there is nothing to do now. */
int softverbs_step(void);
/* Time passes: 'ns', or less, up to what the device has to do next; returns 1 if that came first. */
int softverbs_pass(uint64_t ns);
/* Nanoseconds of the device's clock: CLOCK_MONOTONIC outside of deterministic mode. May be called anywhere. */
uint64_t softverbs_now(void);
/* Random bytes: the kernel's, or in deterministic mode the seed's. */
void softverbs_random(void *out, size_t size);
/* In deterministic mode 'fn' is called at the start of every call that does not only read attributes, with
 * its name as softverbs_script() knows it: where another thread could run. NULL: nobody. */
typedef void (*softverbs_call_fn)(const char *name);
void softverbs_watch(softverbs_call_fn fn);

/* How many objects of a kind live: "context", "pd", "mr", "mw", "channel", "cq", "qp", "cm-channel", "cm-id".
 * Those whose destroy only said that it worked are among them. */
unsigned int softverbs_count(const char *kind);
/* The living queue pairs of this process, at most 'max', oldest first; returns how many were copied. */
size_t softverbs_qps(struct ibv_qp **out, size_t max);

/* Waits until the device has nothing to do: no packet under way, no work request running, no
 * completion late. */
void softverbs_settle(void);

#endif
