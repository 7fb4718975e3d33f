/* SPDX-License-Identifier: BSD-2-Clause */
#include "backends/engine/config.h"

#include <inttypes.h>
#include <string.h>

#include "abi/revision1.h"
#include "backends/engine/args.h"

enum kind { COUNT, MS, BOOL, SIZE };

struct key {
	const char *name;
	const char *value;
	enum kind kind;
	uint32_t offset;
	uint64_t min;
	uint64_t max;
};

#define KEY(name, value, kind, min, max, member, help)                                             \
	{name, value, kind, (uint32_t)offsetof(struct config, member), min, max},
static const struct key keys[] = {ENGINE_KEYS(KEY)};
#define NKEYS (sizeof(keys) / sizeof(keys[0]))

escrow_status config_number(const char *key, const char *value, int suffixes, uint64_t min,
			    uint64_t max, uint64_t *out, struct escrow_error *error)
{
	const char *s = value;
	uint64_t v = 0;
	unsigned int shift = 0;
	bool good = *s >= '0' && *s <= '9';

	for (; good && *s >= '0' && *s <= '9'; s++) {
		uint64_t digit = (uint64_t)(*s - '0');

		good = v <= (UINT64_MAX - digit) / 10;
		v = v * 10 + digit;
	}
	if (good && suffixes && *s) {
		shift = *s == 'K' || *s == 'k' ? 10 : *s == 'M' || *s == 'm' ? 20 : 0;
		shift = *s == 'G' || *s == 'g' ? 30 : shift;
		good = shift != 0 && v <= UINT64_MAX >> shift;
		v <<= shift;
		s++;
	}
	if (!good || *s || v < min || v > max)
		return args_fail(error, ESCROW_E_INVALID,
				 "%s is \"%.60s\"; allowed is a number from %" PRIu64 " to %" PRIu64
				 "%s",
				 key, value, min, max, suffixes ? " (suffix K, M or G)" : "");
	*out = v;
	return ESCROW_OK;
}

/* Edits between two short words; the words here are under 32 bytes, longer ones are far anyway. */
static unsigned int distance(const char *a, const char *b)
{
	size_t na = strnlen(a, 33), nb = strnlen(b, 33), i, j;
	unsigned int row[34], up, left, cost;

	if (na > 32 || nb > 32)
		return 99;
	for (j = 0; j <= nb; j++)
		row[j] = (unsigned int)j;
	for (i = 1; i <= na; i++) {
		up = row[0];
		row[0] = (unsigned int)i;
		for (j = 1; j <= nb; j++) {
			left = row[j - 1] + 1;
			cost = up + (a[i - 1] != b[j - 1]);
			up = row[j];
			row[j] = up + 1 < left ? up + 1 : left;
			row[j] = cost < row[j] ? cost : row[j];
		}
	}
	return row[nb];
}

static escrow_status unknown_key(const char *key, const struct native_ops *native,
				 struct escrow_error *error)
{
	const char *best = keys[0].name;
	unsigned int least = UINT32_MAX, d;
	uint32_t i;

	for (i = 0; i < NKEYS + native->noptions; i++) {
		const char *name = i < NKEYS ? keys[i].name : native->options[i - NKEYS].key;

		d = distance(key, name);
		if (d < least) {
			least = d;
			best = name;
		}
	}
	/* Half of it another word is no misspelling. */
	if (2 * (size_t)least > strlen(key))
		return args_fail(error, ESCROW_E_INVALID,
				 "unknown key \"%.60s\"; the descriptor's options list the keys",
				 key);
	return args_fail(error, ESCROW_E_INVALID, "unknown key \"%.60s\"; the nearest is \"%s\"",
			 key, best);
}

static escrow_status set_own(struct config *c, const struct key *k, const char *value,
			     struct escrow_error *error)
{
	uint64_t v;
	escrow_status st =
		config_number(k->name, value, k->kind == SIZE, k->min, k->max, &v, error);

	if (st < 0)
		return st;
	memcpy((char *)c + k->offset, &v, sizeof(v));
	return ESCROW_OK;
}

static escrow_status set_native(struct config *c, const struct native_ops *native,
				const struct escrow_kv *kv, struct escrow_error *error)
{
	uint32_t i;

	for (i = 0; i < native->noptions; i++)
		if (strcmp(native->options[i].key, kv->key) == 0)
			break;
	if (i == native->noptions)
		return unknown_key(kv->key, native, error);
	for (i = 0; i < c->nnative; i++)
		if (strcmp(c->native[i].key, kv->key) == 0)
			break;
	if (i == CONFIG_MAX_NATIVE)
		return args_fail(error, ESCROW_E_INVALID, "more than %u keys of the backend",
				 CONFIG_MAX_NATIVE);
	c->native[i] = *kv;
	if (i == c->nnative)
		c->nnative++;
	return ESCROW_OK;
}

static escrow_status set(struct config *c, const struct native_ops *native,
			 const struct escrow_kv *kv, struct escrow_error *error)
{
	uint32_t i;

	if (!kv->key || !kv->value)
		return args_fail(error, ESCROW_E_INVALID, "a %s of a setting is NULL",
				 kv->key ? "value" : "key");
	for (i = 0; i < NKEYS; i++)
		if (strcmp(keys[i].name, kv->key) == 0)
			return set_own(c, &keys[i], kv->value, error);
	return set_native(c, native, kv, error);
}

escrow_status config_read(const struct escrow_open_args *args, const struct native_ops *native,
			  struct config *out, struct escrow_error *error)
{
	escrow_status st;
	struct escrow_kv kv;
	uint32_t i;

	if (args->nkv && (!args->kv || !args_stride_ok(args->kv_stride, ABI_R1(escrow_kv))))
		return args_fail(
			error, ESCROW_E_INVALID,
			"%u settings with %s and kv_stride %u; at least %zu, a multiple of "
			"8, is allowed",
			args->nkv, args->kv ? "a table" : "no table", args->kv_stride,
			ABI_R1(escrow_kv));
	memset(out, 0, sizeof(*out));
	for (i = 0; i < NKEYS; i++) {
		st = set_own(out, &keys[i], keys[i].value, error);
		if (st < 0)
			return st;
	}
	for (i = 0; i < args->nkv; i++) {
		memcpy(&kv, (const char *)args->kv + (size_t)i * args->kv_stride,
		       ABI_R1(escrow_kv));
		st = set(out, native, &kv, error);
		if (st < 0)
			return st;
	}
	return ESCROW_OK;
}
