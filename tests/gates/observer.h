/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The observer: a library that is loaded ahead of libibverbs (LD_PRELOAD), real or the double, and so sees
 * every native call of a backend that knows nothing of it. It keeps a list of all objects and calls, counts what each
 * send queue owes, can keep completions back, and can make one teardown call fail by a cause that is real: see
 * enum observer_failure. It judges nothing.
 *
 * All functions may be called from any thread.
 */
#ifndef OBSERVER_H
#define OBSERVER_H

#include <stddef.h>
#include <stdint.h>

enum observer_kind {
	OBSERVER_DEVICE,
	OBSERVER_PD,
	OBSERVER_MR,
	OBSERVER_MW,
	OBSERVER_CHANNEL,
	OBSERVER_CQ,
	OBSERVER_QP,
	OBSERVER_KINDS
};

/* One native object, from its creation on; never removed from the list. */
struct observer_object {
	uint32_t kind;
	uint32_t number;     /* its handle in the kernel, of a channel its descriptor */
	uint32_t number_now; /* what the library's struct says now; of one that was destroyed 0 */
	uint32_t key;        /* of a QP its number, of an MR or MW the rkey at its creation */
	uint32_t ends;       /* calls of its destroy verb */
	int32_t rc;          /* what the first of them answered */
	uint32_t touched;    /* calls that named it after that */
	uint32_t victim;     /* 1: completions of this QP are kept back */
	uint32_t errs;       /* QP: how often it was moved to ERR, and to RESET */
	uint32_t resets;
	uint32_t used; /* PD, device: a QP was made in it (librdmacm has some of its own) */
	uint32_t reserved0;
	const void *at;
	const void *
		parent; /* QP: its send CQ. CQ: its channel. MR, MW: the PD. PD, channel: the device */
	const void *addr;  /* MR */
	uint64_t posted;   /* QP: send work requests that were taken */
	uint64_t finished; /* and those that the device has completed */
	uint64_t
		told; /* and those whose completion was given to the caller, or is covered by one */
	char device[32];
};

struct observer_call {
	uint64_t seq; /* from 1 */
	const char *name;
	const void *at;
	uint32_t number;
	int32_t rc; /* 0 or the errno */
};

/* Which call fails, and by what. */
enum observer_failure {
	OBSERVER_NONE,
	OBSERVER_DESTROY_QP, /* made on a thread whose commands to that device a filter rejects: EIO */
	OBSERVER_DESTROY_CHANNEL, /* another completion queue is on the channel: EBUSY */
	OBSERVER_DESTROY_CQ,      /* a queue pair in RESET is on the completion queue: EBUSY */
	OBSERVER_DEALLOC_PD,      /* a Type-2 window is in the domain: EBUSY */
	OBSERVER_DEREG_MR,        /* as destroy_qp */
	OBSERVER_DEALLOC_MW,      /* as destroy_qp */
	OBSERVER_CLOSE_DEVICE, /* not by the observer: ibv_close_device answers 0 whatever happens */
};

/* Which success completion is the first to be kept back. */
enum observer_what { OBSERVER_READ = 1, OBSERVER_WRITE, OBSERVER_INVALIDATE };

struct observer_plan {
	/* The first queue pair on this device to have, after `skip` others, such a completion is the victim: that
	 * completion and every later one of its send queue is kept back. "": none. */
	char withhold_on[32];
	uint32_t withhold; /* enum observer_what */
	uint32_t skip;
	/* One call on this device fails: of the victim (its completion queue, its channel) if the victim is on this
	 * device, else the first. `addr`: only the registration that begins there. */
	char fail_on[32];
	uint32_t failure; /* enum observer_failure */
	uint32_t reserved0;
	const void *addr;
};
void observer_plan(const struct observer_plan *plan);

struct observer_state {
	uint64_t calls;       /* in the list */
	uint64_t withheld;    /* completions that were kept back */
	uint64_t outstanding; /* send work requests that the device has not completed */
	uint64_t owed;        /* and those of which the caller does not know it */
	uint32_t created_qps;
	uint32_t failed;      /* 1: the call that was to fail was made */
	uint64_t withheld_id; /* wr_id of the first one */
};
void observer_state(struct observer_state *out);

/* How many there are; fills at most max. */
size_t observer_objects(struct observer_object *out, size_t max);
/* Those that follow `after` (0: all), oldest first; how many were copied. */
size_t observer_calls(uint64_t after, struct observer_call *out, size_t max);

/* What became of the object whose destroy verb was made to fail, long after. */
struct observer_proof {
	uint32_t number; /* as in struct observer_object */
	uint32_t key;
	int32_t use; /* QP: ibv_query_qp; CQ: armed; channel: F_GETFD; PD: a window is made in it */
	int32_t state;   /* QP: enum ibv_qp_state */
	int32_t unblock; /* what was in the way is destroyed */
	int32_t end;     /* and then the object itself, for good */
};
/* 0, or ENOENT: no call failed, or it was made again. The calls are the observer's own and not in the list. */
int observer_prove(struct observer_proof *out);

#endif
