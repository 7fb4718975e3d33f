/* SPDX-License-Identifier: BSD-2-Clause */
#include <string.h>

#include "tools/demo.h"

/* One multiplication and a shift per word: every byte depends on the pattern and on its place. */
static uint64_t word_of(uint64_t pattern, uint64_t index)
{
	uint64_t x = (pattern << 40) ^ (index + 1) * UINT64_C(0x9e3779b97f4a7c15);

	return x ^ (x >> 29);
}

void demo_fill(uint8_t *payload, uint64_t bytes, uint64_t pattern)
{
	for (uint64_t i = 0; i < bytes; i += 8) {
		uint64_t w = word_of(pattern, i / 8);

		memcpy(payload + i, &w, MIN(8, bytes - i));
	}
}

bool demo_check(const uint8_t *payload, uint64_t bytes, uint64_t pattern)
{
	for (uint64_t i = 0; i < bytes; i += 8) {
		uint64_t w = word_of(pattern, i / 8);

		if (memcmp(payload + i, &w, MIN(8, bytes - i)))
			return false;
	}
	return true;
}
