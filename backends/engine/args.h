/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * args.h - what comes from the host is checked here, by one mechanism for all structs (abi L1, L5).
 *
 * Pure functions; any thread.
 */
#ifndef ENGINE_ARGS_H
#define ENGINE_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <escrow/backend.h>

/* The revision that this code is written for; ESCROW_REVISION is the header's. */
#define ENGINE_REVISION 1u

#define ARGS_NONE UINT32_MAX

/* What is known about a struct that starts with its size. */
struct args_shape {
	const char *name;     /* "escrow_region_args", for texts */
	uint32_t rev1;        /* its size in revision 1 */
	uint32_t known;       /* its size as this code knows it */
	uint32_t flags;       /* offset of its flags word, or ARGS_NONE */
	uint32_t flags_known; /* the bits that are legal in it */
	uint32_t reserved;    /* offset of a uint32_t that must be zero, or ARGS_NONE */
};

extern const struct args_shape args_open, args_region, args_invite, args_peer, args_grant;
extern const struct args_shape args_hello, args_host, args_limits, args_peer_info;

/*
 * Copies *from into *to (shape->known bytes, a missing tail is zero) if it is well formed.
 * E_INVALID: NULL, too small, a reserved member; E_UNSUPPORTED: an unknown flag, or a tail that is
 * not zero.  *to is defined on success only.
 */
escrow_status args_read(const struct args_shape *shape, const void *from, void *to,
			struct escrow_error *error);

/*
 * Writes *from (shape->known bytes) into the caller's *to, never beyond its size; its size member
 * stays, what it has beyond the known tail becomes zero.  E_INVALID: NULL or too small.
 */
escrow_status args_write(const struct args_shape *shape, const void *from, void *to);

/* Is stride legal for elements of `size` bytes?  At least the size, and a multiple of 8. */
static inline bool args_stride_ok(uint32_t stride, size_t size)
{
	return stride >= size && stride % 8 == 0;
}

/*
 * A name of 1..63 bytes (peer or engine): copied into to[64], zero padded.  `what` is named in the
 * text.  E_INVALID: NULL, empty, too long.
 */
escrow_status args_name(const char *what, const char *from, char to[64],
			struct escrow_error *error);

/* "ENOMEM"; "?" for a number without a name. */
const char *args_errno(int number);

/* flags of a slot that knows none: OK or E_UNSUPPORTED. */
static inline escrow_status args_no_flags(uint32_t flags)
{
	return flags ? ESCROW_E_UNSUPPORTED : ESCROW_OK;
}

/*
 * Fills *error (may be NULL, or too small: then nothing) and returns status.  The text is cut to
 * fit, and what is not UTF-8 becomes '?'.
 */
escrow_status args_fail(struct escrow_error *error, escrow_status status, const char *format, ...)
	__attribute__((format(printf, 3, 4), cold));
/* The same with an errno and a vendor code. */
escrow_status args_fail_errno(struct escrow_error *error, escrow_status status, int32_t sys_errno,
			      const char *format, ...) __attribute__((format(printf, 4, 5)));
/* Hands on what a callee of ours wrote into *from (a full struct escrow_error); returns status. */
escrow_status args_pass(struct escrow_error *error, escrow_status status,
			const struct escrow_error *from);
/* Each returns what it was given: said here, where compilers and the analyzer of each caller see it. */
#define args_fail(error, status, ...) ((void)args_fail(error, status, __VA_ARGS__), (status))
#define args_fail_errno(error, status, ...)                                                        \
	((void)args_fail_errno(error, status, __VA_ARGS__), (status))
#define args_pass(error, status, from) ((void)args_pass(error, status, from), (status))

#endif
