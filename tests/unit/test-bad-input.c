/* SPDX-License-Identifier: BSD-2-Clause */
/* Bad input that no other test gives to the slots: refused with a text, and nothing changes. */
#include "tests/unit/reports.h"

/* What an error must do: no event, no charge, a text. */
static void refused(struct kit *k, escrow_status st, const struct escrow_error *error)
{
	ck_assert_int_lt(st, 0);
	ck_assert_int_ne(st, ESCROW_E_INTERNAL);
	ck_assert_int_eq(error->status, st);
	ck_assert_uint_gt(strlen(error->text), 10);
}

START_TEST(every_altered_byte_of_an_invitation_is_refused)
{
	struct escrow_invite_args invite = {.size = sizeof(invite), .peer_name = "b"};
	struct escrow_peer_args args = {.size = sizeof(args), .peer_name = "a"};
	uint8_t bytes[1024];
	uint64_t len = sizeof(bytes), peer;
	struct kit a, b;

	kit_start(&a, "a");
	kit_start(&b, "b");
	ck_assert_int_eq(KIT_OPS->invite(a.engine, &invite, bytes, &len), ESCROW_OK);
	for (uint64_t i = 0; i < 2 * len; i++) {
		struct escrow_error error = {.size = sizeof(error)};
		uint8_t *exact = malloc(i < len ? len : i - len + 1); /* the sanitizer's fence */

		memcpy(exact, bytes, i < len ? len : i - len);
		if (i < len)
			exact[i] ^= (uint8_t)(1u << i % 8);
		args.invitation = exact;
		args.invitation_len = i < len ? len : i - len;
		peer = 7;
		refused(&b, KIT_OPS->connect(b.engine, &args, &peer, &error), &error);
		ck_assert_uint_eq(peer, 7);
		free(exact);
	}
	ck_assert_uint_eq(charge(&b, ESCROW_CHARGE_CONNECTIONS).used, 0);
	kit_connect(&a, &b);
	both_close(&a, &b);
}
END_TEST

START_TEST(every_altered_byte_of_a_grant_is_refused)
{
	uint64_t grant, len, remote;
	uint8_t bytes[4096];
	struct kit a, b;

	connected(&a, &b, &grant);
	len = sizeof(bytes);
	ck_assert_int_eq(KIT_OPS->export_grant(a.engine, grant, bytes, &len), ESCROW_OK);
	for (uint64_t i = 0; i < 2 * len; i++) {
		struct escrow_error error = {.size = sizeof(error)};
		uint64_t n = i < len ? len : i - len;
		uint8_t *exact = malloc(n + 1);

		memcpy(exact, bytes, n);
		if (i < len)
			exact[i] ^= (uint8_t)(1u << i % 8);
		remote = 7;
		refused(&b, KIT_OPS->import_grant(b.engine, b.peer, exact, n, 0, &remote, &error),
			&error);
		ck_assert_uint_eq(remote, 7);
		free(exact);
	}
	ck_assert_int_eq(KIT_OPS->import_grant(b.engine, b.peer, bytes, len, 0, &remote, NULL),
			 ESCROW_OK);
	both_close(&a, &b);
}
END_TEST

/* Peers of one connection, whose ops go another way than those of two. */
static void with_rails(int rails)
{
	static const char *const one[] = {"control_thread=0", "mock.rails=1", NULL};

	kit_settings = rails == 1 ? one : NULL;
}

/* H02 */
START_TEST(ranges_that_wrap_are_refused)
{
	static const uint64_t odd[] = {KIT_BYTES + 1, UINT64_MAX, UINT64_MAX - 1, UINT64_C(1) << 63,
				       UINT64_MAX - KIT_BYTES + 1};
	uint64_t remote, id = 7, region = 7, grant = 7;
	struct kit a, b;

	with_rails(_i);
	remote = connected(&a, &b, NULL);
	for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
		struct escrow_error error = {.size = sizeof(error)};
		struct escrow_grant_args args = {.size = sizeof(args),
						 .rights = RIGHTS,
						 .peer = a.peer,
						 .region = a.region,
						 .offset = odd[i],
						 .length = KIT_BYTES};
		uint64_t v = odd[i];

		ck_assert_int_lt(try_op(&b, remote, (struct escrow_sge){b.region, v, 64}, 0, &id),
				 0);
		ck_assert_int_lt(try_op(&b, remote, (struct escrow_sge){b.region, 64, v}, 0, &id),
				 0);
		ck_assert_int_lt(try_op(&b, remote, (struct escrow_sge){b.region, 0, 64}, v, &id),
				 0);
		refused(&a, KIT_OPS->grant(a.engine, &args, &grant, &error), &error);
		args.offset = 64;
		args.length = v;
		refused(&a, KIT_OPS->grant(a.engine, &args, &grant, &error), &error);
		if (v > KIT_BYTES + 1)
			refused(&a, lend(&a, a.memory, v, &region, &error), &error);
	}
	ck_assert_uint_eq(id, 7);
	ck_assert_uint_eq(region, 7);
	ck_assert_uint_eq(grant, 7);
	ck_assert_uint_eq(charge(&b, ESCROW_CHARGE_OPS).used, 0);
	ck_assert_uint_eq(charge(&a, ESCROW_CHARGE_GRANTS).used, 1);
	both_close(&a, &b);
}
END_TEST

/* P08, B03: handles of another kind, another engine, another generation, and none. */
START_TEST(foreign_handles_are_refused)
{
	uint64_t remote, grant, bad[32], id = 7, len;
	uint32_t n = 0;
	struct kit a, b;
	uint8_t buf[4096];

	with_rails(_i);
	remote = connected(&a, &b, &grant);
	for (int i = 0; i < 64; i += 8)
		bad[n++] = b.region ^ UINT64_C(1) << i;
	bad[n++] = 0;
	bad[n++] = UINT64_MAX;
	bad[n++] = b.peer;
	bad[n++] = remote;
	bad[n++] = grant;
	for (uint32_t i = 0; i < n; i++) {
		uint64_t h = bad[i];

		ck_assert_int_lt(try_op(&b, remote, (struct escrow_sge){h, 0, 64}, 0, &id), 0);
		ck_assert_int_eq(KIT_OPS->deregister_memory(b.engine, h, 0), ESCROW_E_INVALID);
		ck_assert_int_eq(KIT_OPS->cancel(b.engine, h, 0), ESCROW_E_INVALID);
		len = sizeof(buf);
		ck_assert_int_lt(KIT_OPS->export_grant(b.engine, h, buf, &len), 0);
		ck_assert_int_lt(KIT_OPS->revoke(b.engine, h, 0), 0);
		if (h != b.peer)
			ck_assert_int_lt(KIT_OPS->disconnect(b.engine, h, 0), 0);
		if (h == remote)
			continue;
		ck_assert_int_lt(try_op(&b, h, (struct escrow_sge){b.region, 0, 64}, 0, &id), 0);
		ck_assert_int_lt(KIT_OPS->forget_grant(b.engine, h), 0);
	}
	ck_assert_uint_eq(id, 7);
	id = kit_transfer(&b, remote, ESCROW_WRITE, 0, 0, 64);
	ck_assert_uint_eq(kit_wait(&b, &a, ESCROW_EV_OP_DONE).object, id);
	ck_assert_int_eq(KIT_OPS->cancel(b.engine, id, 0), ESCROW_E_INVALID);
	both_close(&a, &b);
}
END_TEST

/* Peers that come and go cost nothing in the end, and their handles are never met again. */
START_TEST(a_thousand_connections_leave_nothing)
{
	uint64_t allocs = 0, last = 0;
	struct kit a, b;

	kit_start(&a, "a");
	kit_start(&b, "b");
	for (int i = 0; i < 1000; i++) {
		kit_connect(&a, &b);
		ck_assert_uint_ne(b.peer, last);
		last = b.peer;
		ck_assert_int_eq(KIT_OPS->disconnect(i % 2 ? a.engine : b.engine,
						     i % 2 ? a.peer : b.peer, 0),
				 ESCROW_IN_PROGRESS);
		kit_wait(&a, &b, ESCROW_EV_PEER_DOWN);
		kit_wait(&b, &a, ESCROW_EV_PEER_DOWN);
		a.nseen = b.nseen = 0;
		if (i == 10)
			allocs = kit_allocs;
	}
	ck_assert_uint_eq(kit_allocs, allocs);
	ck_assert_uint_eq(charge(&a, ESCROW_CHARGE_CONNECTIONS).used, 0);
	both_close(&a, &b);
}
END_TEST

/* P03: to the limit and one more; overlapping and repeated. */
START_TEST(registrations_end_at_the_limit)
{
	struct escrow_limits limits = {.size = sizeof(limits)};
	struct escrow_error error = {.size = sizeof(error)};
	struct escrow_event event = {.kind = 0};
	uint64_t region, n = 1, first = 0;
	escrow_status st;
	struct kit a;

	kit_start(&a, "a");
	ck_assert_int_eq(KIT_OPS->query(a.engine, &limits), ESCROW_OK);
	while ((st = lend(&a, a.memory + n % 7, 64 + n % 5, &region, &error)) == ESCROW_OK &&
	       n <= limits.max_regions) {
		first = first ? first : region;
		n++;
	}
	ck_assert_uint_eq(n, limits.max_regions);
	ck_assert(st == ESCROW_E_LIMIT || st == ESCROW_E_QUOTA);
	refused(&a, st, &error);
	ck_assert_int_eq(KIT_OPS->deregister_memory(a.engine, first, 0), ESCROW_IN_PROGRESS);
	kit_wait(&a, NULL, ESCROW_EV_REGION_RELEASED);
	ck_assert_int_eq(lend(&a, a.memory, 64, &region, &error), ESCROW_OK);
	ck_assert_uint_ne(region, first);
	ck_assert_int_eq(KIT_OPS->deregister_memory(a.engine, first, 0), ESCROW_E_INVALID);
	/* More events than the kit keeps: each region ends with its own. */
	ck_assert_int_eq(KIT_OPS->close(a.engine, 0, ESCROW_CLOSE_ABORT), ESCROW_IN_PROGRESS);
	while (event.kind != ESCROW_EV_CLOSED)
		KIT_OPS->poll(a.engine, &event, 1, sizeof(event), 0);
	KIT_OPS->release(a.engine);
	free(a.memory);
	ck_assert_uint_eq(kit_allocs, 0);
}
END_TEST

/* The text names the key, what was given, and what is allowed; a text in an error is printable. */
START_TEST(odd_settings_are_named)
{
	static const char *const values[] = {"",
					     "-1",
					     "1e9",
					     "1K1",
					     " 1",
					     "1 ",
					     "0x10",
					     "+1",
					     "K",
					     "1KK",
					     "\x01",
					     "\n",
					     "1\x1b[2J",
					     "99999999999999999999999999",
					     "18446744073709551616",
					     "18446744073709551615G"};
	char text[96];

	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		struct escrow_error error = {.size = sizeof(error)};
		const char *settings[] = {text, NULL};
		struct kit a;

		snprintf(text, sizeof(text), "quota.bytes=%s", values[i]);
		refused(&a, kit_open(&a, "a", settings, &error), &error);
		ck_assert_int_eq(error.status, ESCROW_E_INVALID);
		ck_assert_msg(strstr(error.text, "quota.bytes") != NULL, "%s", error.text);
		ck_assert_msg(strstr(error.text, "allowed") != NULL, "%s", error.text);
		for (const char *c = error.text; *c; c++)
			ck_assert_msg((unsigned char)*c >= ' ', "a control character in: %s",
				      error.text);
	}
	ck_assert_uint_eq(kit_allocs, 0);
}
END_TEST

START_TEST(names_have_1_to_63_bytes)
{
	static const struct {
		uint32_t length;
		int good;
	} cases[] = {{0, 0}, {1, 1}, {63, 1}, {64, 0}, {300, 0}};
	struct kit a;
	char name[301];

	kit_start(&a, "a");
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct escrow_invite_args args = {.size = sizeof(args), .peer_name = name};
		uint8_t bytes[1024];
		uint64_t len = sizeof(bytes);

		memset(name, 'n', sizeof(name));
		name[cases[i].length] = 0;
		ck_assert_int_eq(KIT_OPS->invite(a.engine, &args, bytes, &len),
				 cases[i].good ? ESCROW_OK : ESCROW_E_INVALID);
	}
	kit_close(&a, NULL, false);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("bad-input");
	TCase *t = tcase_create("bad input");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, every_altered_byte_of_an_invitation_is_refused);
	tcase_add_test(t, every_altered_byte_of_a_grant_is_refused);
	tcase_add_loop_test(t, ranges_that_wrap_are_refused, 1, 3);
	tcase_add_loop_test(t, foreign_handles_are_refused, 1, 3);
	tcase_add_test(t, a_thousand_connections_leave_nothing);
	tcase_add_test(t, registrations_end_at_the_limit);
	tcase_add_test(t, odd_settings_are_named);
	tcase_add_test(t, names_have_1_to_63_bytes);
	suite_add_tcase(s, t);
	return testing_run(s);
}
