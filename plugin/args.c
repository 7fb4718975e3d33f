/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdint.h>
#include <string.h>

#include "plugin/args.h"
#include "plugin/error.h"

escrow_status args_check(const void *args, size_t known, const char *what,
			 struct escrow_error *error)
{
	const uint8_t *bytes = args;
	uint32_t size;

	if (!args)
		return error_set(error, ESCROW_E_INVALID, "%s: no args", what);
	memcpy(&size, args, sizeof(size));
	if (size < known)
		return error_set(error, ESCROW_E_INVALID,
				 "%s: the args have %u bytes; at least %zu are allowed", what, size,
				 known);
	for (size_t i = known; i < size; i++) {
		if (bytes[i])
			return error_set(error, ESCROW_E_UNSUPPORTED,
					 "%s: the args have %u bytes, of which %zu are known; the "
					 "rest must be zero",
					 what, size, known);
	}
	return ESCROW_OK;
}
