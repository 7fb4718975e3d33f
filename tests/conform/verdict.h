/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * verdict.h - what a case says of the backend, and how that reaches the parent.
 *
 * Lines of tab-separated fields on the parent's pipe: "I key value" (a fact for the report), "W
 * text" (a warning) and, last and once, "V VERDICT CLAUSE TEXT".  The exit status says nothing: a
 * backend that calls exit(0) must not pass.
 */
#ifndef CONFORM_VERDICT_H
#define CONFORM_VERDICT_H

#include <stdint.h>

#include <escrow/backend.h>

/* Where records go, and the case whose clauses are named when a check names none. */
void verdict_open(int fd, const char *case_id, const char *clauses);

void verdict_fact(const char *key, const char *format, ...) __attribute__((format(printf, 2, 3)));
void verdict_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The end of the case: the record is written and the process ends.  Any thread; the first wins. */
_Noreturn void verdict_pass(void);
_Noreturn void verdict_skip(const char *format, ...) __attribute__((format(printf, 1, 2)));
_Noreturn void verdict_broken(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* clause NULL: the first one of the case. */
_Noreturn void verdict_fail(const char *clause, const char *file, int line, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

/* The backend broke `clause` (NULL: the case's first) unless `what` holds. */
#define expect_as(clause, what, ...)                                                               \
	do {                                                                                       \
		if (!(what))                                                                       \
			verdict_fail(clause, __FILE__, __LINE__, __VA_ARGS__);                     \
	} while (0)
#define expect(what, ...) expect_as(NULL, what, __VA_ARGS__)

/* A slot's answer. */
#define expect_status_as(clause, call, want)                                                       \
	do {                                                                                       \
		escrow_status expect_got = (call);                                                 \
		escrow_status expect_want = (want);                                                \
		if (expect_got != expect_want)                                                     \
			verdict_fail(clause, __FILE__, __LINE__, "%s gives %s, not %s", #call,     \
				     verdict_status(expect_got), verdict_status(expect_want));     \
	} while (0)
#define expect_status(call, want) expect_status_as(NULL, call, want)

/* The name of a status, for texts. */
const char *verdict_status(escrow_status status);
const char *verdict_event(unsigned int kind);

#endif
