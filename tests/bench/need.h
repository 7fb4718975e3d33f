/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef BENCH_NEED_H
#define BENCH_NEED_H

#include <check.h>
#include <stdbool.h>

/* In what is measured: an assertion of Check's looks whether it was told, also when it holds. */
static inline void need(bool holds, const char *what)
{
	if (!holds)
		ck_abort_msg("%s", what);
}

#endif
