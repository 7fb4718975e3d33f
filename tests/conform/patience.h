/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * patience.h - how long a case waits for what must come.
 *
 * Most of the time that the runner gives the whole case, whatever that is: a machine that is slow or
 * busy gets as long as its user allowed it, and there is still time to say what did not come.
 */
#ifndef CONFORM_PATIENCE_H
#define CONFORM_PATIENCE_H

#include <stdbool.h>
#include <stdint.h>

/* The runner's time limit; without a runner ten seconds are waited. */
void patience_limit(unsigned int ms);

/* How long each wait may take. */
unsigned int patience_ms(void);

/* A wait that begins now ends at that time of the monotonic clock, in ns. */
uint64_t patience_end(void);
bool patience_over(uint64_t end);

/* Between two looks: lets others run, first the processor, then, from the fiftieth round on, a millisecond. */
void patience_idle(unsigned int round);

#endif
