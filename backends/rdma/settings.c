/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "backends/rdma/options.h"
#include "backends/rdma/rdma.h"

const struct escrow_option rdma_options[RDMA_NOPTIONS] = {RDMA_OPTIONS};

/* Where a key goes; min = max = 0 marks a text, size is then the room for it. */
struct key {
	const char *name;
	long min, max;
	size_t offset, size;
};
#define MEMBER(member)                                                                             \
	offsetof(struct rdma_settings, member), sizeof(((struct rdma_settings *)0)->member)
#define KEY_NUMBER(member, value, min, max, help) {"rdma." #member, min, max, MEMBER(member)},
#define KEY_TEXT(member, value, help) {"rdma." #member, 0, 0, MEMBER(member)},
static const struct key keys[] = {RDMA_KEYS(KEY_NUMBER, KEY_TEXT)};
_Static_assert(sizeof(keys) / sizeof(keys[0]) == RDMA_NOPTIONS, "RDMA_NOPTIONS counts the keys");

static bool is_text(const struct key *k)
{
	return k->min == 0 && k->max == 0;
}

static void store(struct rdma_settings *set, const struct key *k, long number)
{
	char *at = (char *)set + k->offset;

	switch (k->size) {
	case sizeof(uint8_t):
		*(uint8_t *)at = (uint8_t)number;
		break;
	case sizeof(uint16_t):
		*(uint16_t *)(void *)at = (uint16_t)number;
		break;
	default:
		*(int *)(void *)at = (int)number;
		break;
	}
}

static escrow_status set_key(struct rdma_settings *set, const struct key *k, const char *value,
			     struct escrow_error *error)
{
	char *end;
	long number;

	if (is_text(k)) {
		if (strlen(value) >= k->size)
			return error_set(error, ESCROW_E_INVALID, 0,
					 "%s: %zu bytes; at most %zu are allowed", k->name,
					 strlen(value), k->size - 1);
		memcpy((char *)set + k->offset, value, strlen(value) + 1);
		return ESCROW_OK;
	}
	errno = 0;
	number = strtol(value, &end, 0);
	if (errno || end == value || *end || number < k->min || number > k->max)
		return error_set(error, ESCROW_E_INVALID, 0,
				 "%s = \"%.40s\": a number from %ld to %ld is allowed", k->name,
				 value, k->min, k->max);
	store(set, k, number);
	return ESCROW_OK;
}

/* A key is its low 15 bits, beside that of the membership, and 0 is none (IBTA, 10.9). */
static escrow_status check_pkey(uint16_t pkey, struct escrow_error *error)
{
	if (!pkey || (pkey & PKEY_BASE))
		return ESCROW_OK;
	return error_set(
		error, ESCROW_E_INVALID, 0,
		"rdma.pkey = \"0x%04x\": only the membership bit is set; 1 to 0x7fff are allowed, "
		"with or without it",
		pkey);
}

static escrow_status set_named(struct rdma_settings *set, const char *name, const char *value,
			       struct escrow_error *error)
{
	for (size_t i = 0; i < RDMA_NOPTIONS; i++)
		if (!strcmp(keys[i].name, name))
			return set_key(set, &keys[i], value, error);
	return error_set(error, ESCROW_E_INVALID, 0, "unknown key \"%.60s\"", name);
}

escrow_status settings_read(const struct escrow_kv *kv, uint32_t nkv, struct rdma_settings *set,
			    struct escrow_error *error)
{
	escrow_status status;

	memset(set, 0, sizeof(*set));
	for (uint32_t i = 0; i < RDMA_NOPTIONS; i++)
		set_key(set, &keys[i], rdma_options[i].value, NULL);
	for (uint32_t i = 0; i < nkv; i++) {
		status = set_named(set, kv[i].key, kv[i].value, error);
		if (status != ESCROW_OK)
			return status;
	}
	return check_pkey(set->pkey, error);
}
