/* SPDX-License-Identifier: BSD-2-Clause */
#define _GNU_SOURCE /* strerrorname_np(3) */
#include "backends/engine/args.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "abi/revision1.h"

#define SHAPE(type, flags_at, bits, reserved_at)                                                   \
	{                                                                                          \
		.name = #type, .rev1 = ABI_R1(type), .known = ABI_R1(type), .flags = (flags_at),   \
		.flags_known = (bits), .reserved = (reserved_at)                                   \
	}
#define AT(type, member) ((uint32_t)offsetof(struct type, member))

/* In revision 1 what is known is what was published; rev1 stays when the structs grow. */
const struct args_shape args_open =
	SHAPE(escrow_open_args, AT(escrow_open_args, flags), 0, AT(escrow_open_args, reserved0));
const struct args_shape args_region =
	SHAPE(escrow_region_args, AT(escrow_region_args, flags), 0, ARGS_NONE);
const struct args_shape args_invite =
	SHAPE(escrow_invite_args, AT(escrow_invite_args, flags), ESCROW_INVITE_ANY, ARGS_NONE);
const struct args_shape args_peer =
	SHAPE(escrow_peer_args, AT(escrow_peer_args, flags), 0, ARGS_NONE);
const struct args_shape args_grant = SHAPE(escrow_grant_args, ARGS_NONE, 0, ARGS_NONE);
const struct args_shape args_hello = SHAPE(escrow_hello, ARGS_NONE, 0, AT(escrow_hello, reserved0));
const struct args_shape args_host = SHAPE(escrow_host, ARGS_NONE, 0, AT(escrow_host, reserved0));
const struct args_shape args_limits = SHAPE(escrow_limits, ARGS_NONE, 0, ARGS_NONE);
const struct args_shape args_peer_info = SHAPE(escrow_peer_info, ARGS_NONE, 0, ARGS_NONE);

static uint32_t word_at(const void *p, uint32_t offset)
{
	uint32_t v;

	memcpy(&v, (const char *)p + offset, sizeof(v));
	return v;
}

static bool tail_is_zero(const void *p, uint32_t from, uint32_t to)
{
	const unsigned char *b = p;

	for (; from < to; from++)
		if (b[from])
			return false;
	return true;
}

escrow_status args_read(const struct args_shape *shape, const void *from, void *to,
			struct escrow_error *error)
{
	uint32_t size, n;

	if (!from)
		return args_fail(error, ESCROW_E_INVALID, "%s is NULL", shape->name);
	size = word_at(from, 0);
	if (size < shape->rev1)
		return args_fail(error, ESCROW_E_INVALID, "%s.size is %u; at least %u is allowed",
				 shape->name, size, shape->rev1);
	if (size > shape->known && !tail_is_zero(from, shape->known, size))
		return args_fail(error, ESCROW_E_UNSUPPORTED,
				 "%s has %u bytes, of which %u are known; the rest must be zero",
				 shape->name, size, shape->known);
	if (shape->flags != ARGS_NONE && (word_at(from, shape->flags) & ~shape->flags_known))
		return args_fail(error, ESCROW_E_UNSUPPORTED,
				 "%s.flags is 0x%x; known are the bits 0x%x", shape->name,
				 word_at(from, shape->flags), shape->flags_known);
	if (shape->reserved != ARGS_NONE && word_at(from, shape->reserved))
		return args_fail(error, ESCROW_E_INVALID, "%s.reserved0 is 0x%x; it must be 0",
				 shape->name, word_at(from, shape->reserved));
	n = size < shape->known ? size : shape->known;
	memcpy(to, from, n);
	if (n < shape->known)
		memset((char *)to + n, 0, shape->known - n);
	return ESCROW_OK;
}

escrow_status args_write(const struct args_shape *shape, const void *from, void *to)
{
	uint32_t size, n;

	if (!to)
		return ESCROW_E_INVALID;
	size = word_at(to, 0);
	if (size < shape->rev1)
		return ESCROW_E_INVALID;
	n = size < shape->known ? size : shape->known;
	memcpy((char *)to + sizeof(uint32_t), (const char *)from + sizeof(uint32_t),
	       n - sizeof(uint32_t));
	if (size > n)
		memset((char *)to + n, 0, size - n);
	return ESCROW_OK;
}

escrow_status args_name(const char *what, const char *from, char to[64], struct escrow_error *error)
{
	size_t n;

	if (!from)
		return args_fail(error, ESCROW_E_INVALID, "%s is NULL; it needs 1 to 63 bytes",
				 what);
	n = strnlen(from, 64);
	if (n == 0 || n > 63)
		return args_fail(error, ESCROW_E_INVALID, "%s has %s bytes; 1 to 63 are allowed",
				 what, n ? "more than 63" : "0");
	memset(to, 0, 64);
	memcpy(to, from, n);
	return ESCROW_OK;
}

const char *args_errno(int number)
{
	const char *name = strerrorname_np(number);

	return name ? name : "?";
}

/* The length of the UTF-8 sequence at s, or 0 if there is none (RFC 3629 without its corners). */
static size_t sequence_at(const unsigned char *s)
{
	size_t n, i;

	if (s[0] < 0x80)
		return 1;
	if (s[0] >= 0xc2 && s[0] <= 0xdf)
		n = 2;
	else if ((s[0] & 0xf0) == 0xe0)
		n = 3;
	else if (s[0] >= 0xf0 && s[0] <= 0xf4)
		n = 4;
	else
		return 0;
	for (i = 1; i < n; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	return n;
}

/* Values in it are foreign: nothing of them may break the line or steer a terminal. */
static void make_one_line(char *text)
{
	unsigned char *s = (unsigned char *)text;
	size_t n;

	while (*s) {
		n = sequence_at(s);
		if (!n || *s < ' ' || *s == 0x7f) {
			*s = '?';
			n = 1;
		}
		s += n;
	}
}

static void fill(struct escrow_error *error, escrow_status status, int32_t sys_errno,
		 const char *format, va_list ap)
{
	if (!error || error->size < sizeof(*error))
		return;
	error->status = status;
	error->sys_errno = sys_errno;
	error->vendor = 0;
	vsnprintf(error->text, sizeof(error->text), format, ap);
	make_one_line(error->text);
}

/* The functions behind the macros of args.h. */
#undef args_fail
#undef args_fail_errno
#undef args_pass

escrow_status args_fail(struct escrow_error *error, escrow_status status, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	fill(error, status, 0, format, ap);
	va_end(ap);
	return status;
}

escrow_status args_fail_errno(struct escrow_error *error, escrow_status status, int32_t sys_errno,
			      const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	fill(error, status, sys_errno, format, ap);
	va_end(ap);
	return status;
}

escrow_status args_pass(struct escrow_error *error, escrow_status status,
			const struct escrow_error *from)
{
	return args_fail_errno(error, status, from->sys_errno, "%s", from->text);
}
