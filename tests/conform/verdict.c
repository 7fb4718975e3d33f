/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/conform/verdict.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int verdict_fd = 2;
static const char *verdict_case = "?";
static char verdict_clause[32] = "?";
static atomic_flag verdict_given = ATOMIC_FLAG_INIT;

void verdict_open(int fd, const char *case_id, const char *clauses)
{
	size_t n = strcspn(clauses, " ");

	verdict_fd = fd;
	verdict_case = case_id;
	if (n >= sizeof(verdict_clause))
		n = sizeof(verdict_clause) - 1;
	memcpy(verdict_clause, clauses, n);
	verdict_clause[n] = 0;
}

/* One record is one write of less than PIPE_BUF bytes, so records of threads do not mix. */
static void write_record(const char *head, const char *format, va_list ap)
{
	char line[2048];
	size_t n, i, at;

	n = (size_t)snprintf(line, sizeof(line), "%s\t", head);
	at = n;
	vsnprintf(line + n, sizeof(line) - n - 1, format, ap);
	n = strlen(line);
	for (i = at; i < n; i++)
		if (line[i] == '\n' || line[i] == '\t')
			line[i] = ' ';
	line[n++] = '\n';
	for (i = 0; i < n;) {
		ssize_t w = write(verdict_fd, line + i, n - i);

		if (w <= 0)
			_exit(3);
		i += (size_t)w;
	}
}

void verdict_fact(const char *key, const char *format, ...)
{
	char head[64];
	va_list ap;

	snprintf(head, sizeof(head), "I\t%s", key);
	va_start(ap, format);
	write_record(head, format, ap);
	va_end(ap);
}

void verdict_warn(const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	write_record("W", format, ap);
	va_end(ap);
}

/*
 * Ends by exit() when the case passed, so that a leak checker built into the program has its say,
 * and by _exit() when not: other threads may still run in the backend.
 */
static _Noreturn void end(const char *verdict, const char *clause, const char *format, va_list ap)
{
	char head[96];

	if (atomic_flag_test_and_set(&verdict_given))
		for (;;)
			pause();
	snprintf(head, sizeof(head), "V\t%s\t%s", verdict, clause);
	write_record(head, format, ap);
	if (!strcmp(verdict, "PASS"))
		exit(0);
	_exit(0);
}

static _Noreturn void end_text(const char *verdict, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	end(verdict, verdict_clause, format, ap);
	va_end(ap);
}

void verdict_pass(void)
{
	end_text("PASS", "%s", "");
}

void verdict_skip(const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	end("SKIP", verdict_clause, format, ap);
	va_end(ap);
}

void verdict_broken(const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	end("BROKEN", verdict_clause, format, ap);
	va_end(ap);
}

void verdict_fail(const char *clause, const char *file, int line, const char *format, ...)
{
	const char *base = strrchr(file, '/');
	char text[1536];
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	if (clause)
		snprintf(verdict_clause, sizeof(verdict_clause), "%s", clause);
	end_text("FAIL", "%s (%s:%d)", text, base ? base + 1 : file, line);
}

static const struct {
	escrow_status status;
	const char *name;
} status_names[] = {
	{ESCROW_OK, "OK"},
	{ESCROW_IN_PROGRESS, "IN_PROGRESS"},
	{ESCROW_EVENTS_PENDING, "EVENTS_PENDING"},
	{ESCROW_E_INVALID, "E_INVALID"},
	{ESCROW_E_STATE, "E_STATE"},
	{ESCROW_E_UNSUPPORTED, "E_UNSUPPORTED"},
	{ESCROW_E_REVISION, "E_REVISION"},
	{ESCROW_E_TOO_SMALL, "E_TOO_SMALL"},
	{ESCROW_E_LIMIT, "E_LIMIT"},
	{ESCROW_E_BUSY, "E_BUSY"},
	{ESCROW_E_NO_MEMORY, "E_NO_MEMORY"},
	{ESCROW_E_AGAIN, "E_AGAIN"},
	{ESCROW_E_QUOTA, "E_QUOTA"},
	{ESCROW_E_MEMLOCK, "E_MEMLOCK"},
	{ESCROW_E_TIMEOUT, "E_TIMEOUT"},
	{ESCROW_E_CANCELED, "E_CANCELED"},
	{ESCROW_E_PEER_LOST, "E_PEER_LOST"},
	{ESCROW_E_STALE_EPOCH, "E_STALE_EPOCH"},
	{ESCROW_E_ACCESS, "E_ACCESS"},
	{ESCROW_E_REFUSED, "E_REFUSED"},
	{ESCROW_E_DEVICE, "E_DEVICE"},
	{ESCROW_E_INTERNAL, "E_INTERNAL"},
	{ESCROW_E_UNQUIESCED, "E_UNQUIESCED"},
};

const char *verdict_status(escrow_status status)
{
	static _Thread_local char number[4][16];
	static _Thread_local unsigned int turn;
	size_t i;

	for (i = 0; i < sizeof(status_names) / sizeof(status_names[0]); i++)
		if (status_names[i].status == status)
			return status_names[i].name;
	turn = (turn + 1) % 4;
	snprintf(number[turn], sizeof(number[turn]), "%d", status);
	return number[turn];
}

const char *verdict_event(unsigned int kind)
{
	static const char *const names[] = {
		"0",           "OP_DONE",       "OP_EXPIRED",      "PEER_UP",      "PEER_DOWN",
		"GRANT_READY", "GRANT_REVOKED", "REGION_RELEASED", "DRAINED",      "QUARANTINED",
		"DEVICE",      "CLOSED",        "OP_RETURNED",     "REMOTE_READY", "ROOM",
		"PEER_LOST",   "MESSAGE",       "MESSAGE_SENT"};

	return kind < sizeof(names) / sizeof(names[0]) ? names[kind] : "unknown kind";
}
