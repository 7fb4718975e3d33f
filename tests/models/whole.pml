/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * whole.pml - the design as a whole, at a small size: one device and lane, two queue pairs (one to each of
 * two incarnations of the same peer), two regions, two windows, three slices, and an adversary that
 * decides what every native call really does.  docs/models.md maps the names to the code.
 *
 * The truth about the device is in the variables that begin with `hw_`; everything else is the ledger.
 * No step of the backend decides by the truth (a work request that is not
 * AWAY is one that was posted and not polled, which the ledger counts too).  Invariants compare the two, in Watch after every step.
 *
 * FAULTS: how many answers of the adversary in one run may be anything but the plain one.  FATAL 1: the device may be lost at any time.  WEAK_RESET 1: a reset that
 * says 0 is no proof on this provider.  LANE_ROOM: how many connections the completion queue has room for.
 *
 * RULE 0 is the code's.  Unsafe ones:
 *   1 loans released at the drain's deadline          2 loans released when the destroy returned 0
 *   3 grants of a lost peer released at once          4 a queue pair destroyed with windows bound
 *   5 a failed destroy tried again                    6 a lost device believed
 *   7 the key told before the bind's completion       8 the same tag for every bind
 *   9 slots of a connection returned at the deadline 10 a quota for each incarnation
 *  11 stuck loans do not hold their region           12 an event acknowledged later
 *  13 charges of what is quarantined dropped         14 completions waited for without a deadline
 *  15 a flushed bind taken for one that never was    16 an invalidation that was flushed taken for one
 *  17 what is quarantined does not hold the lane
 */
#include "common.pml"
#ifndef FAULTS
#define FAULTS 2
#endif
#ifndef FATAL
#define FATAL 0
#endif
#ifndef WEAK_RESET
#define WEAK_RESET 0
#endif
#ifndef LANE_ROOM
#define LANE_ROOM 2
#endif
#ifndef CLOSES
#define CLOSES 0
#endif
#ifndef GRANTS
#define GRANTS 2 /* in all; the quota of the peer's name is one at a time */
#endif
#define QUOTA 1
#define SLOTS 5 /* of a send queue: two slices, bind and invalidation, sentinel */
#define OF(s) (s / 2) /* slices 0 and 1 go over queue pair 0, slice 2 over 1 */
#define IN(s) (s % 2) /* slice 1 lies in region 1, the others in region 0; grants are of region 1 */
#define GRANTED 1

/* ---- the truth ---------------------------------------------------------------------------------- */
#define RESET 0 /* or no queue pair: touches nothing, lets nothing in */
#define RTS 1
#define ERR 2 /* ends what it has; lets nothing in */
byte hw_qp[2] = { RTS, RESET };
/* a work request: not with the device, may touch memory, completion waits to be polled (success, error), */
#define AWAY 0
#define LIVE 1
#define GOOD 2
#define BAD 3
#define LOST 4 /* over, but its completion never comes */
byte hw_slice[3], hw_sentinel[2], hw_bind[2], hw_inval[2];
byte hw_window[2]; /* the grant it is bound for, 0 = invalid */
byte hw_window_qp[2];
bool hw_mr[2] = { 1, 1 };
bool hw_dealloced[2];
bool hw_cq_dead, lost;
bool told[3]; /* the peer has the key */
byte told_window[3], told_qp[3];

/* ---- the ledger ---------------------------------------------------------------------------------- */
#define NONE 0
#define READY 1
#define RETIRING 2
#define DESTROYED 3
#define QUARANTINED 4
byte conn[2] = { READY, NONE };
#define R_ERR 0
#define R_HARVEST 1
#define R_WINDOWS 2
byte rung[2]; /* of a retiring connection: the step that comes next */
bool err_ok[2], error_called[2], reset_called[2], destroy_called[2];
byte slots[2];
#define PLANNED 0
#define POSTED 1
#define SETTLED 2
#define STUCK 3
byte slice[3];
#define LIVING 0
#define WITHDRAWN 1
#define FREED 2
#define KEPT 3
byte region[2];
bool dereg_called[2];
#define PARKED 0
#define BINDING 1
#define BOUND 2
#define INVALIDATING 3
#define ORPHAN 4
#define GONE 5
#define HELD 6
byte window[2], window_qp[2], window_grant[2], window_account[2];
bool revoking[2], dealloc_called[2];
byte grants; /* so far */
byte entitled; /* the grant that may touch the page of region 1; 0: the host's */
byte charged_grants, charged_of[2]; /* by name; of each incarnation */
byte faults = FAULTS; /* left to the adversary */
byte unacked; /* events got and not acknowledged */
byte peer = 1; /* its incarnation */
bool closing;
#define CLOSED 1
#define UNQUIESCED 2
byte ended;
byte stage; /* of the close: regions, windows, lane, channel, PD */
bool lane_gone, pd_gone;

/* ---- the adversary --------------------------------------------------------------------------------- */
bool rc, effect; /* of the call under way */
/* ok; ok and nothing happened, for calls that prove nothing; refused or failed; failed, but it happened */
inline call(may_lie) {
	if
	:: rc = 0; effect = 1
#if FAULTS
	:: faults && may_lie -> faults--; rc = 0; effect = 0
	:: faults -> faults--; rc = 1; effect = 0
	:: faults -> faults--; rc = 1; effect = 1
#endif
	fi
}
inline over() { rc = 0; effect = 0 }
#define believed (!lost || RULE == 6)

/* ---- release ------------------------------------------------------------------------------------------ */
inline settle(s, proof) {
	if
	:: slice[s] == POSTED || slice[s] == STUCK ->
		HOLDS(5, (proof) && !lost);
		slice[s] = SETTLED; slots[OF(s)]--
	:: else
	fi
}
inline settle_conn(q, proof) {
	if
	:: q == 0 -> settle(0, proof); settle(1, proof)
	:: else -> settle(2, proof)
	fi
}
inline stick(q) {
	if
	:: q == 0 ->
		if :: slice[0] == POSTED -> slice[0] = STUCK :: else fi;
		if :: slice[1] == POSTED -> slice[1] = STUCK :: else fi
	:: else ->
		if :: slice[2] == POSTED -> slice[2] = STUCK :: else fi
	fi;
#if RULE == 13
	slots[q] = 0;
#endif
	conn[q] = QUARANTINED
}
inline grant_over(w, proof) {
	HOLDS(5, (proof) && !lost);
	if :: entitled == window_grant[w] -> entitled = 0 :: else fi;
	window_grant[w] = 0; revoking[w] = 0; charged_grants--; charged_of[window_qp[w]]--
}
/* What the device forgets when a queue pair stands: also completions that nobody has polled. */
inline hw_stand(q) {
	hw_qp[q] = RESET; hw_sentinel[q] = AWAY;
	if
	:: q == 0 -> hw_slice[0] = AWAY; hw_slice[1] = AWAY
	:: else -> hw_slice[2] = AWAY
	fi;
	if :: window_qp[0] == q -> hw_bind[0] = AWAY; hw_inval[0] = AWAY :: else fi;
	if :: window_qp[1] == q -> hw_bind[1] = AWAY; hw_inval[1] = AWAY :: else fi
}
#define debt_slices(q) (q == 0 -> (slice[0] == POSTED) + (slice[1] == POSTED) : (slice[2] == POSTED))
#define debt_window(w, q) (window_qp[w] == q && (hw_bind[w] != AWAY || hw_inval[w] != AWAY))
#define debt(q) (debt_slices(q) + debt_window(0, q) + debt_window(1, q) + (hw_sentinel[q] != AWAY))
#define on_qp(w, q) (window_qp[w] == q && window[w] >= BINDING && window[w] <= ORPHAN)
#define held_on(w, q) (window_qp[w] == q && window[w] == HELD)

/* ---- the device --------------------------------------------------------------------------------------- */
inline answer(wr, with) {
	if
	:: !hw_cq_dead -> wr = with
	:: hw_cq_dead -> wr = LOST
#if FAULTS
	:: faults && !hw_cq_dead -> faults--; wr = LOST
#endif
	fi
}
inline may_lose(wr) {
	if :: wr == GOOD || wr == BAD -> wr = LOST :: else fi
}
inline bind_ends(w) {
	if
	:: !hw_dealloced[w] ->
		hw_window[w] = window_grant[w]; hw_window_qp[w] = window_qp[w];
		if
		:: hw_qp[window_qp[w]] == RTS -> answer(hw_bind[w], GOOD)
		:: hw_qp[window_qp[w]] == ERR -> answer(hw_bind[w], BAD) /* flushed, and done all the same */
		fi
	:: hw_qp[window_qp[w]] == ERR || hw_dealloced[w] -> answer(hw_bind[w], BAD)
#if FAULTS
	:: faults && hw_qp[window_qp[w]] == RTS -> faults--; answer(hw_bind[w], BAD)
#endif
	fi
}
inline inval_ends(w) {
	if
	:: hw_window[w] = 0;
		if
		:: hw_qp[window_qp[w]] == RTS -> answer(hw_inval[w], GOOD)
		:: hw_qp[window_qp[w]] == ERR -> answer(hw_inval[w], BAD)
		fi
	:: hw_qp[window_qp[w]] == ERR -> answer(hw_inval[w], BAD)
#if FAULTS
	:: faults && hw_qp[window_qp[w]] == RTS -> faults--; answer(hw_inval[w], BAD)
#endif
	fi
}
#define up(q) (hw_qp[q] != RESET)
active proctype Device() {
end:	do
	:: atomic { hw_slice[0] == LIVE && up(0) -> answer(hw_slice[0], GOOD) }
	:: atomic { hw_slice[1] == LIVE && up(0) && hw_slice[0] != LIVE -> answer(hw_slice[1], GOOD) }
	:: atomic { hw_slice[2] == LIVE && up(1) -> answer(hw_slice[2], GOOD) }
	:: atomic { hw_bind[0] == LIVE && up(window_qp[0]) -> bind_ends(0) }
	:: atomic { hw_bind[1] == LIVE && up(window_qp[1]) -> bind_ends(1) }
	:: atomic { hw_inval[0] == LIVE && up(window_qp[0]) -> inval_ends(0) }
	:: atomic { hw_inval[1] == LIVE && up(window_qp[1]) -> inval_ends(1) }
	:: atomic { hw_sentinel[0] == LIVE && up(0) && hw_slice[0] != LIVE && hw_slice[1] != LIVE &&
			!(window_qp[0] == 0 && (hw_bind[0] == LIVE || hw_inval[0] == LIVE)) &&
			!(window_qp[1] == 0 && (hw_bind[1] == LIVE || hw_inval[1] == LIVE)) ->
			answer(hw_sentinel[0], GOOD) }
	:: atomic { hw_sentinel[1] == LIVE && up(1) && hw_slice[2] != LIVE &&
			!(window_qp[0] == 1 && (hw_bind[0] == LIVE || hw_inval[0] == LIVE)) &&
			!(window_qp[1] == 1 && (hw_bind[1] == LIVE || hw_inval[1] == LIVE)) ->
			answer(hw_sentinel[1], GOOD) }
	od
}

/* ---- the poller of the lane ------------------------------------------------------------------------------ */
inline event() {
#if RULE == 12
	if :: unacked == 0 -> unacked = 1 :: else fi
#else
	skip /* got and acknowledged under the lane's lock, by the same hand */
#endif
}
#define waits(wr) (wr == GOOD || wr == BAD)
#define window_waits(w, q) (window_qp[w] == q && (waits(hw_bind[w]) || waits(hw_inval[w])))
inline orphan(w) { window[w] = ORPHAN; revoking[w] = 1 }
inline tell(w) {
	HOLDS(6, hw_window[w] == window_grant[w]);
	told[window_grant[w]] = 1; told_window[window_grant[w]] = w; told_qp[window_grant[w]] = window_qp[w]
}
inline poll_bind(w) {
	if
	:: window[w] == BINDING && hw_bind[w] == GOOD ->
		window[w] = BOUND;
		if :: !revoking[w] && RULE != 7 -> tell(w) :: else fi
	:: window[w] == BINDING && hw_bind[w] == BAD ->
#if RULE == 15
		window[w] = PARKED; grant_over(w, 0)
#else
		orphan(w)
#endif
	:: else
	fi;
	hw_bind[w] = AWAY; event()
}
inline poll_inval(w) {
	if
	:: window[w] == INVALIDATING && (hw_inval[w] == GOOD || RULE == 16) ->
		window[w] = PARKED; grant_over(w, hw_inval[w] == GOOD)
	:: window[w] == INVALIDATING && hw_inval[w] == BAD && RULE != 16 -> orphan(w)
	:: else
	fi;
	hw_inval[w] = AWAY; event()
}
inline cover_window(w, q) {
	if
	:: window_qp[w] == q ->
		if :: window[w] == BINDING || window[w] == INVALIDATING -> orphan(w) :: else fi;
		hw_bind[w] = AWAY; hw_inval[w] = AWAY
	:: else
	fi
}
active proctype Poller() {
end:	do
	:: atomic { believed && hw_slice[0] == GOOD -> hw_slice[0] = AWAY; settle(0, 1); event() }
	:: atomic { believed && hw_slice[1] == GOOD && hw_slice[0] != GOOD ->
			if :: hw_slice[0] == LOST -> hw_slice[0] = AWAY; REACHED(1); settle(0, 1) :: else fi;
			hw_slice[1] = AWAY; settle(1, 1); event() }
	:: atomic { believed && hw_slice[2] == GOOD -> hw_slice[2] = AWAY; settle(2, 1); event() }
	:: atomic { believed && waits(hw_bind[0]) -> poll_bind(0) }
	:: atomic { believed && waits(hw_bind[1]) -> poll_bind(1) }
	:: atomic { believed && waits(hw_inval[0]) -> poll_inval(0) }
	:: atomic { believed && waits(hw_inval[1]) -> poll_inval(1) }
	:: atomic { believed && hw_sentinel[0] == GOOD && hw_slice[0] != GOOD && hw_slice[1] != GOOD &&
			!window_waits(0, 0) && !window_waits(1, 0) ->
			hw_slice[0] = AWAY; hw_slice[1] = AWAY; hw_sentinel[0] = AWAY;
			if :: slice[0] == STUCK -> REACHED(2) :: else fi;
			settle(0, 1); settle(1, 1); cover_window(0, 0); cover_window(1, 0); event() }
	:: atomic { believed && hw_sentinel[1] == GOOD && hw_slice[2] != GOOD &&
			!window_waits(0, 1) && !window_waits(1, 1) ->
			hw_slice[2] = AWAY; hw_sentinel[1] = AWAY;
			settle(2, 1); cover_window(0, 1); cover_window(1, 1); event() }
#if RULE == 12
	:: unacked > 0 -> unacked = 0
#endif
	od
}

/* ---- the runner: one thread, one step at a time; the lock is open during a call --------------------------- */
inline stop_windows(w, q) {
	if
	:: window_qp[w] == q && window[w] >= BINDING && window[w] <= INVALIDATING -> orphan(w)
	:: else
	fi
}
inline leave(q) {
	conn[q] = RETIRING; rung[q] = R_ERR;
	if :: window_qp[0] == q && window[0] >= BINDING && window[0] <= BOUND -> revoking[0] = 1 :: else fi;
	if :: window_qp[1] == q && window[1] >= BINDING && window[1] <= BOUND -> revoking[1] = 1 :: else fi;
#if RULE == 3
	if :: window_qp[0] == q && window_grant[0] != 0 -> entitled = 0 :: else fi;
	if :: window_qp[1] == q && window_grant[1] != 0 -> entitled = 0 :: else fi;
#endif
}
inline invalidate(w) {
	if
	:: hw_inval[w] = LIVE; window[w] = INVALIDATING
#if FAULTS
	:: faults -> faults--; orphan(w) /* the post was refused */
#endif
	fi
}
inline error_step(q) {
	atomic { HOLDS(4, !error_called[q]); error_called[q] = 1; call(true);
		if :: effect && hw_qp[q] == RTS -> hw_qp[q] = ERR :: else fi };
	atomic {
		if
		:: believed && conn[q] == RETIRING ->
			err_ok[q] = !rc;
			stop_windows(0, q); stop_windows(1, q);
			if
			:: err_ok[q] -> hw_sentinel[q] = LIVE
			:: !err_ok[q]
#if FAULTS
			:: faults && err_ok[q] -> faults-- /* the post was refused */
#endif
			fi;
			rung[q] = R_HARVEST
		:: else
		fi;
		over()
	}
}
/* What a queue pair does not owe any more is not the ledger's debt either. */
inline reset_step(q) {
	atomic { HOLDS(4, !reset_called[q] && !destroy_called[q]); reset_called[q] = 1; call(false);
		if :: effect -> hw_stand(q) :: else fi };
	atomic {
		if
		:: believed && conn[q] == RETIRING && rc -> stick(q)
		:: believed && conn[q] == RETIRING && !rc ->
			if
			:: WEAK_RESET -> skip
			:: else -> if :: hw_cq_dead && debt_slices(q) -> REACHED(3) :: else fi; settle_conn(q, 1)
			fi;
			rung[q] = R_WINDOWS
		:: else
		fi;
		over()
	}
}
inline destroy_step(q) {
	atomic {
		HOLDS(4, !destroy_called[q]);
		HOLDS(7, !(hw_window[0] != 0 && hw_window_qp[0] == q) && !(hw_window[1] != 0 && hw_window_qp[1] == q));
		destroy_called[q] = 1; call(true);
		if :: effect -> hw_stand(q) :: else fi };
	atomic {
		if
		:: believed && conn[q] == RETIRING && RULE == 2 && !rc -> settle_conn(q, 0); conn[q] = DESTROYED
		:: believed && conn[q] == RETIRING && RULE == 5 && rc -> skip /* and once more */
		:: believed && conn[q] == RETIRING && RULE != 2 && !rc && debt_slices(q) == 0 ->
			conn[q] = DESTROYED; REACHED(4)
		:: believed && conn[q] == RETIRING && RULE != 5 && (rc || (debt_slices(q) != 0 && RULE != 2)) ->
			stick(q)
		:: else
		fi;
		over()
	}
}
#define free_of_windows(q) (RULE == 4 || (!on_qp(0, q) && !on_qp(1, q)))
#define hard(q) (RULE != 14 || !err_ok[q] || hw_cq_dead)
inline retire(q) {
	if
	:: rung[q] == R_ERR -> error_step(q)
	:: rung[q] == R_HARVEST && debt(q) == 0 -> rung[q] = R_WINDOWS
	:: rung[q] == R_HARVEST && debt(q) != 0 && hard(q) && RULE != 2 ->
#if RULE == 1
		atomic { settle_conn(q, 0) };
#endif
		reset_step(q)
	:: RULE == 2 && rung[q] == R_HARVEST && free_of_windows(q) -> destroy_step(q)
	:: rung[q] == R_WINDOWS && free_of_windows(q) ->
		if
		:: (held_on(0, q) || held_on(1, q)) && RULE != 4 -> atomic { stick(q) }
		:: else -> destroy_step(q)
		fi
	fi
}
#define can_retire(q) (conn[q] == RETIRING && !lost && (rung[q] == R_ERR || (rung[q] == R_HARVEST && \
	(debt(q) == 0 || (hard(q) && (RULE != 2 || free_of_windows(q))))) || (rung[q] == R_WINDOWS && free_of_windows(q))))
inline dealloc_step(w) {
	atomic { HOLDS(4, !dealloc_called[w]); dealloc_called[w] = 1; call(false);
		if :: effect -> hw_window[w] = 0; hw_dealloced[w] = 1 :: else fi };
	atomic {
		if
		:: believed && !rc && window[w] == ORPHAN -> window[w] = GONE; grant_over(w, 1); REACHED(5)
		:: believed && !rc && window[w] == PARKED -> window[w] = GONE
		:: believed && rc -> window[w] = HELD
		:: else
		fi;
		over()
	}
}
/* A window of another account is not used before that one is fenced, and no key of its may be known. */
#define fenced (conn[0] == DESTROYED && charged_of[0] == 0)
#define fits(w, q) (window[w] == PARKED && (window_account[w] == 0 || window_account[w] == q + 1 || fenced))
#define quota_left(q) (RULE == 10 -> charged_of[q] < QUOTA : charged_grants < QUOTA)
#define may_grant(q) (conn[q] == READY && !lost && !closing && grants < GRANTS && quota_left(q) && \
	region[GRANTED] == LIVING && (entitled == 0 || RULE == 10) && debt(q) + 2 < SLOTS && (fits(0, q) || fits(1, q)))
inline bind(w, q) {
	grants++; window_qp[w] = q; window_account[w] = q + 1;
	if
	:: window_grant[w] = grants; entitled = grants; charged_grants++; charged_of[q]++;
		window[w] = BINDING; hw_bind[w] = LIVE;
		if :: RULE == 7 -> tell(w) :: else fi;
		if :: grants == 2 -> REACHED(6) :: else fi
#if FAULTS
	:: faults -> faults-- /* the post was refused: as if it had never been */
#endif
	fi
}
inline grant(q) {
	if
	:: fits(0, q) -> bind(0, q)
	:: else -> bind(1, q)
	fi
}
#define loans_in(r) (r == 0 -> (slice[0] == POSTED || slice[0] == STUCK || slice[2] == POSTED || slice[2] == STUCK) \
	: (slice[1] == POSTED || slice[1] == STUCK))
inline dereg_step(r) {
	if
	:: lost -> skip
	:: !lost && RULE != 11 && (loans_in(r) || (r == GRANTED && charged_grants)) -> region[r] = KEPT
	:: !lost && !(RULE != 11 && (loans_in(r) || (r == GRANTED && charged_grants))) ->
		atomic { HOLDS(4, !dereg_called[r]);
			HOLDS(7, !loans_in(r) && !(r == GRANTED && (hw_window[0] != 0 || hw_window[1] != 0)));
			dereg_called[r] = 1; region[r] = WITHDRAWN; call(false);
			if :: effect -> hw_mr[r] = 0 :: else fi };
		atomic {
			if
			:: believed && !rc -> region[r] = FREED
			:: believed && rc -> region[r] = KEPT
			:: else
			fi;
			over()
		}
	fi
}
#define conns_over (conn[0] != READY && conn[0] != RETIRING && conn[1] != READY && conn[1] != RETIRING)
#define windows_over (!on_qp(0, 0) && !on_qp(0, 1) && !on_qp(1, 0) && !on_qp(1, 1))
#define stuck_conn (RULE != 17 && (conn[0] == QUARANTINED || conn[1] == QUARANTINED))
#define kept_below (stuck_conn || !lane_gone || window[0] == HELD || window[1] == HELD || \
	region[0] != FREED || region[1] != FREED)
inline close_next() {
	if
	:: stage == 0 -> dereg_step(0); stage = 1
	:: stage == 1 -> dereg_step(1); stage = 2
	:: stage == 2 -> if :: !lost && window[0] == PARKED -> dealloc_step(0) :: else fi; stage = 3
	:: stage == 3 -> if :: !lost && window[1] == PARKED -> dealloc_step(1) :: else fi; stage = 4
	:: stage == 4 -> /* completion queue and channel */
		if
		:: !lost && !stuck_conn ->
			atomic { HOLDS(10, unacked == 0); call(false) };
			atomic { if :: believed && !rc -> stage = 5 :: else -> stage = 7 fi; over() }
		:: else -> stage = 7
		fi
	:: stage == 5 ->
		atomic { call(true) };
		atomic { if :: believed && !rc -> lane_gone = 1 :: else fi; over(); stage = 6 }
	:: stage == 6 -> /* protection domain; closing the device says 0 always */
		if
		:: !lost && !kept_below ->
			atomic { call(true) };
			atomic { if :: believed && !rc -> pd_gone = 1 :: else fi; over(); stage = 7 }
		:: else -> stage = 7
		fi
	:: stage == 7 ->
		atomic { ended = (pd_gone && !lost -> CLOSED : UNQUIESCED);
			if :: ended == CLOSED -> REACHED(7) :: else -> REACHED(8) fi }
	fi
}
active proctype Runner() {
end:	do
	:: atomic { conn[0] == READY && !lost && (closing || peer == 2) -> leave(0) }
	:: atomic { conn[1] == READY && !lost && closing -> leave(1) }
	:: can_retire(0) -> retire(0)
	:: can_retire(1) -> retire(1)
	:: atomic { window[0] == BOUND && revoking[0] && !lost -> invalidate(0) }
	:: atomic { window[1] == BOUND && revoking[1] && !lost -> invalidate(1) }
	:: window[0] == ORPHAN && !lost -> dealloc_step(0)
	:: window[1] == ORPHAN && !lost -> dealloc_step(1)
	:: closing && !ended && (lost || (conns_over && windows_over)) -> close_next()
	od
}

/* ---- the others ---------------------------------------------------------------------------------------------- */
inline post(s) {
	if
	:: slice[s] = POSTED; slots[OF(s)]++; hw_slice[s] = LIVE
#if FAULTS
	:: faults -> faults--; slice[s] = SETTLED /* refused: it was never lent to anybody */
#endif
	fi
}
active proctype Host() {
end:	do
	:: atomic { slice[0] == PLANNED && conn[0] == READY && !lost && !closing -> post(0); post(1) }
	:: atomic { slice[2] == PLANNED && conn[1] == READY && !lost && !closing -> post(2) }
	:: atomic { may_grant(0) -> grant(0) }
	:: atomic { may_grant(1) -> grant(1) }
	:: atomic { window[0] == BOUND && !revoking[0] && !closing -> revoking[0] = 1 }
	:: atomic { window[1] == BOUND && !revoking[1] && !closing -> revoking[1] = 1 }
	:: atomic { !closing -> closing = 1; break }
	od
}

/* It dies at any time, and comes back as somebody new under its old name. */
#define lane_has_room (LANE_ROOM == 2 || conn[0] == DESTROYED || \
	(RULE == 9 && (conn[0] == QUARANTINED || conn[0] == RETIRING)))
active proctype Peer() {
	if
	:: peer = 2
	:: closing
	fi;
	if
	:: atomic { peer == 2 && !closing && !lost && lane_has_room ->
		conn[1] = READY; hw_qp[1] = RTS;
		if :: conn[0] == QUARANTINED -> REACHED(9) :: else fi }
	:: closing
	fi
}

inline freeze_window(w) {
	if :: window[w] == GONE -> skip :: else -> window[w] = HELD fi
}
active proctype Adversary() {
	skip;
#if FAULTS
	do
	:: atomic { faults && !hw_cq_dead && !ended -> faults--;
		hw_cq_dead = 1;
		may_lose(hw_slice[0]); may_lose(hw_slice[1]); may_lose(hw_slice[2]);
		may_lose(hw_bind[0]); may_lose(hw_bind[1]); may_lose(hw_inval[0]); may_lose(hw_inval[1]);
		may_lose(hw_sentinel[0]); may_lose(hw_sentinel[1]) }
#if FATAL
	:: atomic { faults && !lost && !ended -> faults--;
		lost = 1;
		if :: conn[0] == READY || conn[0] == RETIRING -> stick(0) :: else fi;
		if :: conn[1] == READY || conn[1] == RETIRING -> stick(1) :: else fi;
		if :: RULE != 6 -> freeze_window(0); freeze_window(1) :: else fi;
		if :: region[0] != FREED -> region[0] = KEPT :: else fi;
		if :: region[1] != FREED -> region[1] = KEPT :: else fi }
#endif
	:: break
	od
#endif
}

/* ---- invariants ------------------------------------------------------------------------------------------------ */
#define live(s) (hw_slice[s] == LIVE && hw_qp[OF(s)] != RESET)
#define lent(s) (slice[s] == POSTED || slice[s] == STUCK)
#define I1(s) (!live(s) || (lent(s) && region[IN(s)] != FREED))
#define lands(w, g) (hw_window[w] != 0 && hw_qp[hw_window_qp[w]] == RTS && told[g] && told_window[g] == w && \
	told_qp[g] == hw_window_qp[w] && (RULE == 8 || hw_window[w] == g))
#define I2(w, g) (!lands(w, g) || entitled == g)
#define I3 (slots[0] == lent(0) + lent(1) && slots[1] == lent(2) && live(0) + live(1) <= slots[0] && \
	live(2) <= slots[1] && charged_grants == (window_grant[0] != 0) + (window_grant[1] != 0) && \
	(hw_mr[0] || region[0] != LIVING) && (hw_mr[1] || region[1] != LIVING))
#define may_answer(wr) (wr == LIVE || waits(wr))
#define I8 (may_answer(hw_slice[0]) + may_answer(hw_slice[1]) + may_answer(hw_slice[2]) + \
	may_answer(hw_bind[0]) + may_answer(hw_bind[1]) + may_answer(hw_inval[0]) + may_answer(hw_inval[1]) + \
	may_answer(hw_sentinel[0]) + may_answer(hw_sentinel[1]) <= LANE_ROOM * SLOTS)
#define kept(s) (slice[s] != STUCK || (region[IN(s)] != FREED && conn[OF(s)] != DESTROYED))
#define kept_window(w) (window[w] != HELD || (!pd_gone && \
	(window_grant[w] == 0 || (region[GRANTED] != FREED && conn[window_qp[w]] != DESTROYED))))
#define I9 (kept(0) && kept(1) && kept(2) && kept_window(0) && kept_window(1) && \
	((conn[0] != QUARANTINED && conn[1] != QUARANTINED) || (!lane_gone && !pd_gone)) && \
	((region[0] != KEPT && region[1] != KEPT) || !pd_gone))
#define L3 (charged_grants <= QUOTA)

/* Liveness, with a scheduler that is fair to each process. A device that answers is fair without FAULTS. */
#if CLOSES == 1
ltl L1 { [] (closing -> <> (ended == CLOSED)) }
#elif CLOSES == 2
ltl L2 { [] (closing -> <> (ended != 0)) }
#endif

active proctype Watch() {
end:	if
	:: atomic { !(I1(0) && I1(1) && I1(2)) -> HOLDS(1, false) }
	:: atomic { !(I2(0, 1) && I2(0, 2) && I2(1, 1) && I2(1, 2)) -> HOLDS(2, false) }
	:: atomic { !I3 -> HOLDS(3, false) }
	:: atomic { !I8 -> HOLDS(8, false) }
	:: atomic { !I9 -> HOLDS(9, false) }
	:: atomic { !L3 -> HOLDS(13, false) }
	fi
}
