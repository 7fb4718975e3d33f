/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * common.pml - what every model asserts with.
 *
 * HOLDS(n, e): invariant n.  The number survives into the text of pan's message as "(0*n)", by which
 * test-models.sh knows which invariant broke.  -DONLY=n leaves the others out: an unsafe rule is to be
 * caught by what it does to memory, not by the ledger noticing that its own rule was broken.
 *
 * REACHED(n): a place that a correct run must be able to come to.  -DREACH=n makes it an error to be
 * there, and the test expects that error; without it the model could be right by doing nothing.
 */
#ifndef RULE
#define RULE 0
#endif
#ifndef ONLY
#define ONLY 0
#endif
#ifndef REACH
#define REACH 0
#endif
#if ONLY
#define HOLDS(n, e) assert((0 * n) || ONLY != n || (e))
#else
#define HOLDS(n, e) assert((0 * n) || (e))
#endif
#if REACH
#define REACHED(n) assert((0 * 1000) || REACH != n)
#else
#define REACHED(n) skip
#endif
