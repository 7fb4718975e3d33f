/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <glib.h>

#include "plugin/error.h"
#include "plugin/escrow.h"

/* What is quoted comes from files, settings and backends, and goes to terminals and logs. */
static void make_printable(char *text)
{
	for (; *text; text++)
		if (g_ascii_iscntrl(*text))
			*text = '?';
}

static void error_fill(struct escrow_error *error, escrow_status status, int sys_errno,
		       const char *format, va_list args)
{
	size_t used;

	if (!error)
		return;
	error->size = sizeof(*error);
	error->status = status;
	error->sys_errno = sys_errno;
	error->vendor = 0;
	vsnprintf(error->text, sizeof(error->text), format, args);
	used = strlen(error->text);
	if (sys_errno)
		snprintf(error->text + used, sizeof(error->text) - used, ": %s",
			 g_strerror(sys_errno));
	make_printable(error->text);
}

escrow_status error_set(struct escrow_error *error, escrow_status status, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	error_fill(error, status, 0, format, args);
	va_end(args);
	return status;
}

escrow_status error_errno(struct escrow_error *error, escrow_status status, int sys_errno,
			  const char *format, ...)
{
	va_list args;

	va_start(args, format);
	error_fill(error, status, sys_errno, format, args);
	va_end(args);
	return status;
}

void error_clear(struct escrow_error *error)
{
	memset(error, 0, sizeof(*error));
	error->size = sizeof(*error);
}

void error_close(struct escrow_error *error)
{
	error->text[sizeof(error->text) - 1] = '\0';
	make_printable(error->text);
}

const char *escrow_status_name(escrow_status status)
{
	static const struct {
		escrow_status status;
		const char *name;
	} names[] = {
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

	for (size_t i = 0; i < G_N_ELEMENTS(names); i++) {
		if (names[i].status == status)
			return names[i].name;
	}
	return "E_?";
}
