/* SPDX-License-Identifier: BSD-2-Clause */
/* Deterministic mode (softverbs_deterministic()): the device has no thread and makes its turns inside the
 * program's calls, time is a number, and every choice comes from one seed. */
#ifndef SOFTVERBS_TURNS_H
#define SOFTVERBS_TURNS_H

#include "tests/softverbs/base.h"

/* Whether the mode is on. It never goes off again. */
bool turns_on(void);
/* Nanoseconds of that mode's clock. */
uint64_t turns_now(void);
/* Without the lock, at the start of a call: a little time passes, and the device makes some turns. No
 * effect in threaded mode. */
void turns_call(const char *name);
/* In place of waiting, lock held: one turn of the device, or time passes until it has one to make. Ends
 * the program if nothing can come any more, since it would wait for ever; 'what' says for what. */
void turns_wait(const char *what);
/* Lock held: the device makes turns and time passes until it has nothing to do. */
void turns_settle(void);
/* Random bytes: the kernel's, or in that mode the seed's. */
void turns_random(void *out, size_t size);

/* Given by nic.c, lock held. One turn, 'pick' chooses among what could be done; false if nothing is to be
 * done now. */
bool nic_step(uint32_t (*pick)(uint32_t below));
/* Runs what is due at this time, and returns when the next thing is, or UINT64_MAX; 'patient' leaves out
 * what has no end (withheld completions). */
uint64_t nic_due(bool patient);

#endif
