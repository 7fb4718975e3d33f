/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * grant.pml - the owner of memory: one page that is granted to a peer, taken back, and granted again.
 *
 * What the peer has sent may be delayed by the fabric for any time, and be judged when it arrives, by
 * what the device then knows: the queue pair it comes in on, the key, its tag, and whether a window is
 * bound to that queue pair.
 *
 * REVOKE  when the page is the host's again:
 *   0 the completion of the invalidation was polled
 *   1 the invalidation was posted
 *   2 the completion was polled, or some time has passed
 *   3 the peer said that it is done
 * KEY     what the peer was given:
 *   0 a window bound to its queue pair, a new queue pair for each grant
 *   1 the key of a registration, which the provider gives out again, last in first out
 *   2 the same, and a new queue pair for each grant
 *   3 a window bound to its queue pair, which lives on; the tag is another in each grant
 *   4 the same without another tag
 * SECOND_PEER 1: somebody else has a queue pair in this protection domain, and guesses keys.
 */
#include "common.pml"
#ifndef REVOKE
#define REVOKE 0
#endif
#ifndef KEY
#define KEY 0
#endif
#ifndef SECOND_PEER
#define SECOND_PEER 0
#endif
#define BOUND_TO_QP (KEY == 0 || KEY == 3 || KEY == 4)
#define NEW_QP (KEY == 0 || KEY == 2)
#define NEW_TAG (KEY == 0 || KEY == 3)
#define GRANTS 2
#define OTHERS_QP 3

byte entitled; /* the grant that may touch the page; 0: it is the host's */
bool valid;
byte bound_qp;
byte tag;
bool up[4];
chan fabric = [2] of { byte, byte, byte }; /* tag, queue pair, grant */
bool invalidating, invalidated, peer_done;

active proctype Device() {
	byte t, q, g;
end:	do
	:: atomic { fabric?t,q,g ->
		if
		:: up[q] && valid && tag == t && (!BOUND_TO_QP || bound_qp == q) ->
			if :: g == 2 -> REACHED(1) :: else fi;
			HOLDS(2, entitled == g)
		:: else -> if :: g == 1 && entitled == 2 -> REACHED(2) :: else fi /* refused */
		fi; t = 0; q = 0; g = 0 }
	:: atomic { invalidating -> invalidating = false; valid = false; invalidated = true }
	od
}

active proctype Peer() {
	byte sent;
end:	do
	:: atomic { sent < 2 && entitled != 0 && up[bound_qp] && nfull(fabric) ->
			fabric!tag,bound_qp,entitled; sent++ }
	:: atomic { entitled != 0 && !peer_done -> peer_done = true } /* it may not be true */
	od
}

#if SECOND_PEER
active proctype Other() {
	bool sent;
	up[OTHERS_QP] = true;
end:	do
	:: atomic { !sent && nfull(fabric) -> fabric!tag,OTHERS_QP,0; sent = true }
	od
}
#endif

/* engine/window.c, engine/grant.c */
active proctype Owner() {
	byte epoch = 1, next_tag = 1, grant = 1, qp = 1;

	do
	:: grant > GRANTS -> break
	:: else ->
		if
		:: NEW_QP -> qp = epoch
		:: else
		fi;
		atomic { up[qp] = true; tag = next_tag; bound_qp = qp; valid = true; entitled = grant;
			invalidated = false; peer_done = false };
#if REVOKE == 3
		peer_done;
#else
		invalidating = true;
#if REVOKE == 0
		invalidated;
#elif REVOKE == 2
		if :: invalidated :: skip fi;
#endif
#endif
		entitled = 0; /* here the bytes go back */
		skip;
		atomic {
			if
			:: NEW_QP -> up[epoch] = false
			:: else
			fi;
			epoch++; grant++;
			if
			:: NEW_TAG -> next_tag++
			:: else
			fi
		};
		atomic { invalidating = false; valid = false } /* whatever was left, before the next */
	od
}
