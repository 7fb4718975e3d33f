/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * death.pml - a process dies while peers hold keys to memory that it shares with a survivor.
 *
 * The order of the kernel's exit (do_exit(): exit_mm, exit_files and task work, exit_notify): the robust
 * futex says OWNER_DIED first, then the files are closed in no order that is promised (the socket, which
 * the others see as FIN; the device's file, with which its keys die), then the process can be reaped.  A
 * child that it has forked may hold the device's file longer.
 *
 * RULE  when the survivor uses the memory again:
 *   0 the process was reaped and nobody else holds the device's file
 *   1 the process was reaped
 *   2 the connection has ended
 *   3 the futex said that its owner has died
 */
#include "common.pml"

bool owner_died, fin, keys_dead, reaped, child, child_gone, survivor_uses;
byte holders = 1; /* of the device's file */

inline close_device_file() {
	atomic { holders--; if :: holders == 0 -> keys_dead = true :: else fi }
}

active proctype Kernel() {
	if
	:: atomic { child = true; holders = 2 }
	:: skip
	fi;
	owner_died = true;
	if
	:: fin = true; close_device_file()
	:: close_device_file(); fin = true
	fi;
	reaped = true;
	if
	:: child -> close_device_file()
	:: else
	fi;
	child_gone = true
}

/* A peer that uses its keys for as long as they work. */
active proctype Peer() {
	do
	:: atomic { !keys_dead -> HOLDS(2, !survivor_uses) }
	:: keys_dead -> break
	od
}

/* Whoever shares the memory waits for what the supervisor says. */
active proctype Survivor() {
#if RULE == 0
	reaped && child_gone;
#elif RULE == 1
	reaped;
#elif RULE == 2
	fin;
#else
	owner_died;
#endif
	survivor_uses = true;
	if :: child -> REACHED(1) :: else -> REACHED(2) fi
}
