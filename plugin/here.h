/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Is this the process that opened the engine?  A page that a child of fork sees as zero (madvise(2), MADV_WIPEONFORK)
 * says so at the cost of one load: no fork handler, and no system call on the data path.
 */
#ifndef HERE_H
#define HERE_H

#include <stdbool.h>
#include <stdint.h>

/* NULL: no memory. */
volatile uint32_t *here_new(void);
void here_free(volatile uint32_t *here); /* NULL allowed */

/* An engine is opened in this process: from now on its children of fork are told apart. */
void here_note(void);
/* This is such a child.  One of a process that had no engine yet is a process like any other. */
bool here_is_child(void);

#endif
