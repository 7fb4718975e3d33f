/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * loan.pml - the requester: one queue pair with two slices, each of which lends one buffer to the device.
 *
 * The device may touch a lent buffer until its work request has ended or the queue pair stands.  Its
 * completion queue may die, a completion may be withheld, and the calls that end the queue pair may
 * succeed, do nothing and say so, or work and say that they did not.  The error step and the destroy
 * may also say 0 and do nothing (kernels of mlx5, bnxt_re, irdma and rxe swallow that failure).
 * A reset that says 0 has taken effect: assumption A1, checked nowhere.
 *
 * RULE  when the buffers come back:
 *   0 by their own completion, by a later one of the same send queue, or by a reset that returned 0
 *   1 when the deadline of the transfer is over
 *   2 when the destroy returned 0
 *   3 when both the error step and the destroy returned 0
 *   4 by any completion of the send queue, also an earlier one
 *   5 when the reset was tried, whatever it said
 *   6 rule 0, and one charge is lost when the queue pair is quarantined
 */
#include "common.pml"
#define SLICES 2

mtype:owner = { HOST, LENT, KEPT };
mtype:device = { RUNNING, FLUSHING, STANDING };
mtype:wr = { IDLE, LIVE, ANSWERED, WITHHELD };

mtype:owner buffer[SLICES] = HOST;
mtype:wr slice[SLICES] = IDLE;
mtype:wr sentinel = IDLE;
mtype:device device = RUNNING;
bool cq_dead;
byte charged; /* send queue slots, one a slice */
bool ended;
byte i;

#define TOUCHES(k) (slice[k] == LIVE && device != STANDING)

inline answer(what) {
	if
	:: !cq_dead -> what = ANSWERED
	:: what = WITHHELD
	fi
}

/* A send queue is worked off in order. */
active proctype Device() {
end:	do
	:: atomic { TOUCHES(0) -> HOLDS(1, buffer[0] != HOST) }
	:: atomic { TOUCHES(1) -> HOLDS(1, buffer[1] != HOST) }
	:: atomic { TOUCHES(0) -> answer(slice[0]) }
	:: atomic { TOUCHES(1) && slice[0] != LIVE -> answer(slice[1]) }
	:: atomic { sentinel == LIVE && device != STANDING && slice[0] != LIVE && slice[1] != LIVE ->
			answer(sentinel) }
	:: atomic { !cq_dead -> cq_dead = true }
	od
}

inline give_back(k) {
	if
	:: buffer[k] == LENT -> buffer[k] = HOST; charged--
	:: else
	fi
}

inline give_all_back() { give_back(0); give_back(1) }

/* The poller: the completion of WR k is its own receipt and that of all before it. */
inline poll() {
	if
	:: atomic { slice[0] == ANSWERED -> slice[0] = IDLE; give_back(0);
#if RULE == 4
			give_back(1)
#endif
		}
	:: atomic { slice[1] == ANSWERED && slice[0] != ANSWERED -> slice[1] = IDLE; give_all_back() }
	:: atomic { sentinel == ANSWERED && slice[0] != ANSWERED && slice[1] != ANSWERED ->
			sentinel = IDLE; if :: buffer[0] == LENT -> REACHED(1) :: else fi; give_all_back() }
	fi
}

inline stand() {
	device = STANDING;
	for (i : 0 .. SLICES - 1) { slice[i] = IDLE }
	sentinel = IDLE;
	i = 0
}

/* engine/conn.c: en_conn_retire() */
active proctype Backend() {
	bool error_ok, destroy_ok, stuck;

	/* The loan begins before the post: the device may be quicker than the return from it. */
	atomic { buffer[0] = LENT; buffer[1] = LENT; charged = 2; slice[0] = LIVE; slice[1] = LIVE }
	do
	:: poll()
	:: break /* done, or the deadline, or nobody wants it any more */
	od;
#if RULE == 1
	atomic { give_all_back() };
#endif
	/* to the error state */
	if
	:: atomic { error_ok = true; device = FLUSHING }
	:: error_ok = true
	:: skip
	:: device = FLUSHING
	fi;
	if
	:: error_ok -> sentinel = LIVE
	:: else
	fi;
	do
	:: poll()
	:: break /* drained, or the drain's deadline */
	od;
	/* to the reset state, if anything is owed */
	if
	:: buffer[0] == HOST && buffer[1] == HOST && sentinel == IDLE
	:: else ->
		if
		:: atomic { stand(); if :: cq_dead && buffer[0] == LENT -> REACHED(2) :: else fi;
				give_all_back() }
		:: stuck = true
		:: atomic { stand(); stuck = true }
		fi;
#if RULE == 5
		atomic { give_all_back() };
#endif
	fi;
	/* to be destroyed: not called on one that is quarantined, but a lie must not matter */
	if
	:: atomic { destroy_ok = true; stand() }
	:: destroy_ok = true
	:: skip
	:: atomic { stand() }
	fi;
#if RULE == 2
	atomic { if :: destroy_ok -> give_all_back() :: else fi };
#elif RULE == 3
	atomic { if :: destroy_ok && error_ok -> give_all_back() :: else fi };
#endif
	atomic {
		for (i : 0 .. SLICES - 1) {
			if
			:: buffer[i] == LENT -> buffer[i] = KEPT; REACHED(3)
			:: else
			fi
		}
		i = 0;
#if RULE == 6
		if :: stuck -> charged = (charged > 0 -> charged - 1 : 0) :: else fi;
#endif
		ended = true;
		HOLDS(3, charged == (buffer[0] != HOST) + (buffer[1] != HOST))
	}
}
