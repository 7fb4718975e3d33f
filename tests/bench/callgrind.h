/* SPDX-License-Identifier: BSD-2-Clause */
/* What is counted of a program, where it is built with valgrind's header. */
#ifndef BENCH_CALLGRIND_H
#define BENCH_CALLGRIND_H

#ifdef HAVE_VALGRIND_CALLGRIND_H
#include <valgrind/callgrind.h>
#else
#define CALLGRIND_START_INSTRUMENTATION
#define CALLGRIND_STOP_INSTRUMENTATION
#endif

#endif
