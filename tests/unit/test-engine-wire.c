/* SPDX-License-Identifier: BSD-2-Clause */
/* Bytes of others, settings of the host, and the state table: what is refused, and how. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/engine/config.h"
#include "backends/engine/state.h"
#include "backends/engine/wire.h"
#include "tests/lib/testing.h"

/* Any byte altered, any length cut: refused, never taken for something else. */
START_TEST(altered_invitations)
{
	struct wire_invitation in = {
		.ticket = 7, .nrails = 2, .nlanes = 1, .backend = "mock", .incarnation = {1}};
	struct wire_invitation out;
	uint32_t n = wire_invitation_bytes(2), i;
	uint8_t *buf = malloc(n);

	wire_invitation_put(&in, buf);
	ck_assert_int_eq(wire_invitation_get(buf, n, "mock", &out, NULL), ESCROW_OK);
	ck_assert_mem_eq(&in, &out, sizeof(in));
	ck_assert_int_eq(wire_invitation_get(buf, n, "rdma", &out, NULL), ESCROW_E_INVALID);
	for (i = 0; i < n; i++) {
		buf[i] ^= 0x10;
		ck_assert_int_eq(wire_invitation_get(buf, n, "mock", &out, NULL), ESCROW_E_INVALID);
		buf[i] ^= 0x10;
		ck_assert_int_eq(wire_invitation_get(buf, i, "mock", &out, NULL), ESCROW_E_INVALID);
	}
	free(buf);
}
END_TEST

/* H02 */
START_TEST(altered_grants)
{
	struct wire_grant in = {.epoch = 1,
				.id = 2,
				.addr = 4096,
				.length = 10,
				.rights = 1,
				.nkeys = 2,
				.keys = {5, 6}};
	struct wire_grant out;
	uint32_t n = wire_grant_bytes(2), i;
	uint8_t *buf = malloc(n);

	wire_grant_put(&in, buf);
	ck_assert_int_eq(wire_grant_get(buf, n, &out, NULL), ESCROW_OK);
	ck_assert_uint_eq(out.keys[1], 6);
	for (i = 0; i < n; i++) {
		buf[i] ^= 1;
		ck_assert_int_eq(wire_grant_get(buf, n, &out, NULL), ESCROW_E_INVALID);
		buf[i] ^= 1;
		ck_assert_int_eq(wire_grant_get(buf, i, &out, NULL), ESCROW_E_INVALID);
	}
	/* Well formed bytes with a range that wraps. */
	in.addr = UINT64_MAX - 5;
	wire_grant_put(&in, buf);
	ck_assert_int_eq(wire_grant_get(buf, n, &out, NULL), ESCROW_E_INVALID);
	free(buf);
}
END_TEST

START_TEST(altered_hellos)
{
	struct wire_hello in = {
		.kind = WIRE_REQUEST, .nrails = 2, .nlanes = 1, .rail = 1, .epoch = 3};
	struct wire_hello out;
	uint8_t buf[NATIVE_PRIVATE_BYTES];
	uint32_t i;

	wire_hello_put(&in, buf);
	ck_assert_int_eq(wire_hello_get(buf, sizeof(buf), &out), ESCROW_OK);
	ck_assert_uint_eq(out.epoch, 3);
	for (i = 0; i < sizeof(buf); i++) {
		buf[i] ^= 4;
		ck_assert_int_lt(wire_hello_get(buf, sizeof(buf), &out), 0);
		buf[i] ^= 4;
		ck_assert_int_lt(wire_hello_get(buf, i, &out), 0);
	}
	in.kind = WIRE_REJOIN;
	in.set = 0x12345678;
	wire_hello_put(&in, buf);
	ck_assert_int_eq(wire_hello_get(buf, sizeof(buf), &out), ESCROW_OK);
	ck_assert_uint_eq(out.set, 0x12345678);
	in.rail = 2; /* of two */
	wire_hello_put(&in, buf);
	ck_assert_int_eq(wire_hello_get(buf, sizeof(buf), &out), ESCROW_E_INVALID);
}
END_TEST

/* The vector of the paper: key 00..0f, input 00..0e. */
START_TEST(siphash_vector)
{
	uint8_t key[16], data[15];
	uint8_t i;

	for (i = 0; i < 16; i++)
		key[i] = i;
	for (i = 0; i < 15; i++)
		data[i] = i;
	ck_assert_uint_eq(wire_siphash(key, data, 15), UINT64_C(0xa129ca6149be45e5));
}
END_TEST

static const struct escrow_option own[] = {{"rails", "1", "x"}};
static const struct native_ops native = {.id = "t", .options = own, .noptions = 1};

static escrow_status read_one(const char *key, const char *value, struct config *c, char *text)
{
	struct escrow_kv kv = {key, value};
	struct escrow_open_args args = {.kv = &kv, .nkv = 1, .kv_stride = sizeof(kv)};
	struct escrow_error error = {.size = sizeof(error)};
	escrow_status st = config_read(&args, &native, c, &error);

	strcpy(text, error.text);
	return st;
}

START_TEST(settings)
{
	char text[240];
	struct config c;

	ck_assert_int_eq(read_one("slice_bytes", "64K", &c, text), ESCROW_OK);
	ck_assert_uint_eq(c.slice_bytes, 65536);
	ck_assert_uint_eq(c.num_lanes, 1);
	ck_assert_int_eq(read_one("rails", "3", &c, text), ESCROW_OK);
	ck_assert_uint_eq(c.nnative, 1);
	ck_assert_int_eq(read_one("slice_byte", "1", &c, text), ESCROW_E_INVALID);
	ck_assert_ptr_nonnull(strstr(text, "\"slice_bytes\""));
	ck_assert_int_eq(read_one("raisl", "1", &c, text), ESCROW_E_INVALID);
	ck_assert_ptr_nonnull(strstr(text, "\"rails\""));
	ck_assert_int_eq(read_one("num_lanes", "0", &c, text), ESCROW_E_INVALID);
	ck_assert_int_eq(read_one("num_lanes", "17", &c, text), ESCROW_E_INVALID);
	ck_assert_int_eq(read_one("num_lanes", "1K", &c, text), ESCROW_E_INVALID);
	ck_assert_int_eq(read_one("num_lanes", "", &c, text), ESCROW_E_INVALID);
	ck_assert_int_eq(read_one("num_lanes", "-1", &c, text), ESCROW_E_INVALID);
	ck_assert_int_eq(read_one("quota.bytes", "18446744073709551616", &c, text),
			 ESCROW_E_INVALID);
	ck_assert_int_eq(read_one("quota.bytes", "17179869184G", &c, text), ESCROW_E_INVALID);
	ck_assert_int_eq(read_one("num_lanes", NULL, &c, text), ESCROW_E_INVALID);
}
END_TEST

/* state.c says what abi/states.tsv says. */
START_TEST(state_table)
{
	const char *top = getenv("top_srcdir");
	char path[512], line[256], *word, *save;
	uint32_t slot = 0, state;
	FILE *f;

	snprintf(path, sizeof(path), "%s/abi/states.tsv", top ? top : "..");
	f = fopen(path, "r");
	ck_assert_msg(f != NULL, "%s", path);
	while (fgets(line, sizeof(line), f)) {
		if (line[0] == '#' || strncmp(line, "slot", 4) == 0)
			continue;
		line[strcspn(line, "\n")] = 0;
		word = strtok_r(line, "\t", &save);
		ck_assert_uint_lt(slot, STATE_SLOTS);
		ck_assert_str_eq(word, state_slot_name((enum state_slot)slot));
		for (state = ESCROW_STATE_OPEN; state <= ESCROW_STATE_CLOSED; state++) {
			word = strtok_r(NULL, "\t", &save);
			ck_assert_msg(state_allows((enum state_slot)slot, state) ==
					      (word[0] == 'y'),
				      "%s in %s", state_slot_name((enum state_slot)slot),
				      state_name(state));
		}
		slot++;
	}
	fclose(f);
	ck_assert_uint_eq(slot, STATE_SLOTS);
}
END_TEST

/* ---- Bytes that whoever speaks the format could have made ------------------------------------------ */
/* The check is no secret (wire.h): these are the same bytes with another value, and signed again. */
static void sign(uint8_t *buf, uint32_t covered, uint32_t bytes)
{
	static const uint8_t key[16] = "escrow wire 1 ck";
	uint64_t check = wire_siphash(key, buf, covered);
	uint32_t i;

	for (i = 0; i < bytes; i++)
		buf[covered + i] = (uint8_t)(check >> 8 * i);
}

static void set(uint8_t *at, uint64_t value, uint32_t bytes)
{
	while (bytes--) {
		*at++ = (uint8_t)value;
		value >>= 8;
	}
}

struct change {
	uint32_t at, bytes;
	uint64_t value;
	escrow_status status;
};

static escrow_status get_blob(bool grant, const uint8_t *buf, uint32_t n)
{
	static struct wire_invitation invitation;
	static struct wire_grant lent;
	struct escrow_error error = {.size = sizeof(error)};
	escrow_status st = grant ? wire_grant_get(buf, n, &lent, &error)
				 : wire_invitation_get(buf, n, "mock", &invitation, &error);

	ck_assert_int_eq(error.status, st); /* and so has a text where it fails */
	return st;
}

static void each_change(bool grant, const uint8_t *good, uint32_t n, const struct change *changes,
			size_t count)
{
	uint8_t *buf = malloc(n);
	size_t i;

	for (i = 0; i < count; i++) {
		memcpy(buf, good, n);
		set(buf + changes[i].at, changes[i].value, changes[i].bytes);
		sign(buf, n - 8, 8);
		ck_assert_msg(get_blob(grant, buf, n) == changes[i].status, "change %zu", i);
	}
	free(buf);
}

#define AT_REVISION 8
#define AT_LENGTH 12
#define AT_BODY 16

START_TEST(invitations_of_nonsense)
{
	static const struct change changes[] = {
		{AT_REVISION, 2, WIRE_REVISION, ESCROW_OK},
		{AT_REVISION, 2, WIRE_REVISION + 1, ESCROW_E_REVISION},
		{AT_REVISION + 2, 2, 1, ESCROW_E_REVISION},
		{AT_LENGTH, 4, 17, ESCROW_E_INVALID},
		{AT_BODY + 40, 4, ESCROW_INVITE_ANY, ESCROW_OK},
		{AT_BODY + 40, 4, 0x80, ESCROW_E_INVALID}, /* flags */
		{AT_BODY + 44, 4, 0, ESCROW_E_INVALID},    /* rails */
		{AT_BODY + 44, 4, 1, ESCROW_E_INVALID},    /* there are bytes for two */
		{AT_BODY + 44, 4, NATIVE_MAX_RAILS + 1, ESCROW_E_INVALID},
		{AT_BODY + 48, 4, 0, ESCROW_E_INVALID}, /* lanes */
		{AT_BODY + 48, 4, 17, ESCROW_E_INVALID},
	};
	struct wire_invitation in = {.ticket = 7, .nrails = 2, .nlanes = 1, .backend = "mock"};
	uint8_t buf[512];
	uint32_t n = wire_invitation_bytes(2);

	wire_invitation_put(&in, buf);
	each_change(false, buf, n, changes, sizeof(changes) / sizeof(changes[0]));
	/* Whole, and too short for any rail. */
	set(buf + AT_LENGTH, 24, 4);
	sign(buf, 16, 8);
	ck_assert_int_eq(get_blob(false, buf, 24), ESCROW_E_INVALID);
}
END_TEST

START_TEST(grants_of_nonsense)
{
	static const struct change changes[] = {
		{AT_BODY + 56, 8, 1, ESCROW_OK},
		{AT_BODY + 56, 8, 0, ESCROW_E_INVALID}, /* length */
		{AT_BODY + 64, 4, 0, ESCROW_E_INVALID}, /* rights */
		{AT_BODY + 64, 4, 0x80, ESCROW_E_INVALID},
		{AT_BODY + 68, 4, 0x80, ESCROW_E_INVALID},             /* flags */
		{AT_BODY + 68, 4, WIRE_GRANT_OFFER, ESCROW_E_INVALID}, /* with keys */
		{AT_BODY + 72, 4, 0, ESCROW_E_INVALID},                /* keys */
		{AT_BODY + 72, 4, 1, ESCROW_E_INVALID},
		{AT_BODY + 72, 4, WIRE_MAX_KEYS + 1, ESCROW_E_INVALID},
	};
	struct wire_grant in = {.epoch = 1, .addr = 4096, .length = 10, .rights = 1, .nkeys = 2};
	uint8_t buf[512];
	uint32_t n = wire_grant_bytes(2);

	wire_grant_put(&in, buf);
	each_change(true, buf, n, changes, sizeof(changes) / sizeof(changes[0]));
	/* An offer has no keys; a grant has some. */
	in.nkeys = 0;
	wire_grant_put(&in, buf);
	ck_assert_int_eq(get_blob(true, buf, wire_grant_bytes(0)), ESCROW_E_INVALID);
	in.flags = WIRE_GRANT_OFFER;
	wire_grant_put(&in, buf);
	ck_assert_int_eq(get_blob(true, buf, wire_grant_bytes(0)), ESCROW_OK);
	set(buf + AT_LENGTH, 24, 4);
	sign(buf, 16, 8);
	ck_assert_int_eq(get_blob(true, buf, 24), ESCROW_E_INVALID);
}
END_TEST

START_TEST(hellos_of_nonsense)
{
	static const struct change changes[] = {
		{2, 1, WIRE_REVISION, ESCROW_OK},
		{2, 1, WIRE_REVISION + 1, ESCROW_E_REVISION},
		{3, 1, 0, ESCROW_E_INVALID}, /* kind */
		{3, 1, WIRE_REJOIN + 1, ESCROW_E_INVALID},
		{4, 1, 2, ESCROW_E_INVALID}, /* rail, of two */
		{5, 1, 3, ESCROW_E_INVALID}, /* lane, of three */
		{6, 1, 0, ESCROW_E_INVALID}, /* rails */
		{6, 1, NATIVE_MAX_RAILS + 1, ESCROW_E_INVALID},
		{7, 1, 0, ESCROW_E_INVALID}, /* lanes */
		{7, 1, 17, ESCROW_E_INVALID},
		{8, 4, UINT16_MAX, ESCROW_OK}, /* receives */
		{8, 4, UINT16_MAX + 1, ESCROW_E_INVALID},
		{12, 4, 0, ESCROW_E_INVALID}, /* epoch */
	};
	struct wire_hello in = {.kind = WIRE_REQUEST, .nrails = 2, .nlanes = 3, .epoch = 9}, out;
	uint8_t buf[NATIVE_PRIVATE_BYTES];
	size_t i;

	for (i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
		wire_hello_put(&in, buf);
		set(buf + changes[i].at, changes[i].value, changes[i].bytes);
		sign(buf, 52, 4);
		ck_assert_msg(wire_hello_get(buf, sizeof(buf), &out) == changes[i].status,
			      "change %zu", i);
	}
	ck_assert_int_eq(wire_hello_get(NULL, 0, &out), ESCROW_E_INVALID);
}
END_TEST

START_TEST(messages_of_nonsense)
{
	static const struct change changes[] = {
		{4, 1, WIRE_REVISION, ESCROW_OK},
		{0, 4, 0, ESCROW_E_INVALID}, /* magic */
		{4, 1, WIRE_REVISION + 1, ESCROW_E_REVISION},
		{5, 1, 0, ESCROW_E_INVALID}, /* type */
		{5, 1, WIRE_MESSAGE_TYPES, ESCROW_E_INVALID},
		{6, 2, 6, ESCROW_E_INVALID}, /* length: there are five bytes */
		{6, 2, UINT16_MAX, ESCROW_E_INVALID},
		{8, 4, UINT32_MAX, ESCROW_OK}, /* credits: any total */
		{12, 1, NATIVE_MAX_RAILS, ESCROW_E_INVALID},
	};
	struct wire_message in = {.type = WIRE_NOTE, .length = 5}, out;
	uint8_t buf[WIRE_MESSAGE_HEADER + 5] = {0};
	size_t i;

	for (i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
		wire_message_put(&in, buf);
		set(buf + changes[i].at, changes[i].value, changes[i].bytes);
		sign(buf, WIRE_MESSAGE_HEADER - 8, 8);
		ck_assert_msg(wire_message_get(buf, sizeof(buf), &out) == changes[i].status,
			      "change %zu", i);
	}
	wire_message_put(&in, buf);
	ck_assert_int_eq(wire_message_get(buf, WIRE_MESSAGE_HEADER - 1, &out), ESCROW_E_INVALID);
	buf[7] ^= 1;
	ck_assert_int_eq(wire_message_get(buf, sizeof(buf), &out), ESCROW_E_INVALID);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("engine-wire");
	TCase *t = tcase_create("wire");

	tcase_add_test(t, altered_invitations);
	tcase_add_test(t, altered_grants);
	tcase_add_test(t, altered_hellos);
	tcase_add_test(t, invitations_of_nonsense);
	tcase_add_test(t, grants_of_nonsense);
	tcase_add_test(t, hellos_of_nonsense);
	tcase_add_test(t, messages_of_nonsense);
	tcase_add_test(t, siphash_vector);
	tcase_add_test(t, settings);
	tcase_add_test(t, state_table);
	suite_add_tcase(s, t);
	return testing_run(s);
}
