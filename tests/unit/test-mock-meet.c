/* SPDX-License-Identifier: BSD-2-Clause */
/* The mock's native table: opening and settings; connections come and go. */
#include <errno.h>
#include <string.h>

#include "tests/lib/testing.h"
#include "tests/unit/mock-ends.h"

static struct end a, b;

static void setup(void)
{
	end_open(&a, "", 64);
	end_open(&b, "mock.contexts=2", 64);
	ends_connect(&a, &b);
}

static void teardown(void)
{
	end_close(&a);
	end_close(&b);
}

/* ---- Opening --------------------------------------------------------------------------------- */
START_TEST(settings_are_checked)
{
	static const struct {
		const char *key, *value;
		escrow_status status;
		int error;
	} rows[] = {
		{"mock.rails", "0", ESCROW_E_INVALID, 0},
		{"mock.rails", "17", ESCROW_E_INVALID, 0},
		{"mock.rails", "2x", ESCROW_E_INVALID, 0},
		{"mock.rails", "", ESCROW_E_INVALID, 0},
		{"mock.rails", "-1", ESCROW_E_INVALID, 0},
		{"mock.contexts", "3", ESCROW_E_INVALID, 0},
		{"mock.contexts", "0", ESCROW_E_INVALID, 0},
		{"mock.order", "lifo", ESCROW_E_INVALID, 0},
		{"mock.seed", "0", ESCROW_E_INVALID, 0},
		{"mock.seed", "18446744073709551616", ESCROW_E_INVALID, 0},
		{"mock.rail", "1", ESCROW_E_INVALID, 0},
		{"mock.fail_open", "12", ESCROW_E_NO_MEMORY, ENOMEM},
		{"mock.fail_open", "19", ESCROW_E_DEVICE, ENODEV},
	};
	struct escrow_error error = {.size = sizeof(error)};
	struct escrow_kv kv = {.key = rows[_i].key, .value = rows[_i].value};
	struct native_open_args args = {.host = &ends_host, .kv = &kv, .nkv = 1};
	struct native *n = NULL;

	ck_assert_int_eq(mock_native.open(&args, &n, &error), rows[_i].status);
	ck_assert_ptr_null(n);
	ck_assert_int_eq(error.status, rows[_i].status);
	ck_assert_int_eq(error.sys_errno, rows[_i].error);
	ck_assert_ptr_nonnull(strstr(error.text, rows[_i].key));
}
END_TEST

START_TEST(memory_may_fail_at_open)
{
	struct escrow_error error = {.size = sizeof(error)};
	struct native_open_args args = {.host = &ends_host};
	struct native *n = NULL;

	for (int k = 1; k <= 2; k++) {
		atomic_store(&ends_fail_after, k);
		ck_assert_int_eq(mock_native.open(&args, &n, &error), ESCROW_E_NO_MEMORY);
		ck_assert_ptr_null(n);
	}
	atomic_store(&ends_fail_after, 0);
}
END_TEST

START_TEST(memory_that_is_not_mapped_is_refused)
{
	struct escrow_error error = {.size = sizeof(error)};
	struct escrow_region_args args = {.size = sizeof(args), .memory_kind = ESCROW_MEMORY_HOST};
	struct native_region *r = NULL;

	args.addr = (void *)4096; /* house: mapped by nobody */
	args.length = 4096;
	ck_assert_int_eq(mock_native.register_region(a.c, &args, &r, &error), EFAULT);
	args.length = 0;
	ck_assert_int_eq(mock_native.register_region(a.c, &args, &r, &error), EINVAL);
	args.length = UINT64_MAX;
	ck_assert_int_eq(mock_native.register_region(a.c, &args, &r, &error), EINVAL);
	args.memory_kind = ESCROW_MEMORY_DMABUF;
	ck_assert_int_eq(mock_native.register_region(a.c, &args, &r, &error), EOPNOTSUPP);
	ck_assert_ptr_null(r);
}
END_TEST

/* ---- Meeting and parting -------------------------------------------------------------------- */
START_TEST(requests_are_rejected_with_data)
{
	struct native_conn *q = end_conn(&a);
	struct native_rail_info rail;
	struct native_event event;

	mock_native.rail_info(b.n, 1, &rail);
	ck_assert_uint_eq(rail.context, 1);
	ck_assert_int_eq(mock_native.connect(q, rail.address, NULL, 0), 0);
	ck_assert_int_eq(mock_native.connect(q, rail.address, NULL, 0), EINVAL); /* once */
	/* rail 1 is on device 1, which is not open */
	event = end_event(&a, NATIVE_EV_UNREACHABLE);
	ck_assert_int_eq(event.error, ECONNREFUSED);
	ck_assert_int_eq(mock_native.destroy_conn(q), 0);
	q = end_conn(&a);
	mock_native.rail_info(b.n, 0, &rail);
	ck_assert_int_eq(mock_native.connect(q, rail.address, NULL, 0), 0);
	event = end_event(&b, NATIVE_EV_REQUEST);
	ck_assert_int_eq(mock_native.reject(b.n, event.request, "no", 2), 0);
	event = end_event(&a, NATIVE_EV_REJECTED);
	ck_assert_ptr_eq(event.conn, q);
	ck_assert_uint_eq(event.data_len, 2);
	ck_assert_mem_eq(event.data, "no", 2);
	ck_assert_int_eq(mock_native.destroy_conn(q), 0);
}
END_TEST

START_TEST(addresses_are_checked)
{
	struct native_conn *q = end_conn(&a);
	struct native_rail_info rail;
	struct native_event event;
	uint8_t address[NATIVE_ADDRESS_BYTES];

	mock_native.rail_info(b.n, 0, &rail);
	for (int i = 0; i < 4; i++) {
		static const int at[4] = {0, 7, 24, 31}; /* magic, rail, the zeros */

		memcpy(address, rail.address, sizeof(address));
		address[at[i]] ^= 0x80;
		ck_assert_int_eq(mock_native.connect(q, address, NULL, 0), EINVAL);
	}
	ck_assert_int_eq(mock_native.connect(q, rail.address, address, 57), EINVAL);
	memcpy(address, rail.address, sizeof(address));
	address[8] ^= 1; /* an incarnation that nobody has */
	ck_assert_int_eq(mock_native.connect(q, address, NULL, 0), 0);
	event = end_event(&a, NATIVE_EV_UNREACHABLE);
	ck_assert_int_eq(event.error, ECONNREFUSED);
	ck_assert_int_eq(mock_native.destroy_conn(q), 0);
}
END_TEST

START_TEST(a_requester_that_is_gone_cannot_be_accepted)
{
	struct native_conn *q = end_conn(&a), *answer = end_conn(&b);
	struct native_rail_info rail;
	struct native_event event;

	mock_native.rail_info(b.n, 0, &rail);
	ck_assert_int_eq(mock_native.connect(q, rail.address, NULL, 0), 0);
	event = end_event(&b, NATIVE_EV_REQUEST);
	ck_assert_int_eq(mock_native.destroy_conn(q), 0);
	ck_assert_int_eq(mock_native.accept(answer, event.request, NULL, 0), ECONNRESET);
	ck_assert_int_eq(mock_native.destroy_conn(answer), 0);
}
END_TEST

START_TEST(a_device_connects_to_itself)
{
	struct end one;
	struct native_rail_info rail;
	struct native_event event;
	struct native_conn *other;
	struct native_sge sge;
	struct native_wr wr;

	end_open(&one, "mock.contexts=1", 64);
	one.q = end_conn(&one);
	other = end_conn(&one);
	mock_native.rail_info(one.n, 1, &rail);
	ck_assert_int_eq(mock_native.connect(one.q, rail.address, NULL, 0), 0);
	event = end_event(&one, NATIVE_EV_REQUEST);
	ck_assert_uint_eq(event.rail, 1);
	ck_assert_int_eq(mock_native.accept(other, event.request, NULL, 0), 0);
	end_event(&one, NATIVE_EV_ESTABLISHED);
	end_event(&one, NATIVE_EV_ESTABLISHED);
	wr = end_wr(&one, NATIVE_WRITE, &sge, 0, 8);
	wr.rkey = end_bind(&one, other, ESCROW_MAY_WRITE, 1);
	wr.remote_addr = (uint64_t)(uintptr_t)(one.bytes + END_AT);
	memcpy(one.bytes, "oneself", 8);
	ck_assert_int_eq(end_do(&one, &wr), NATIVE_OK);
	ck_assert_str_eq((char *)one.bytes + END_AT, "oneself");
	ck_assert_int_eq(mock_native.disconnect(one.q), 0);
	event = end_event(&one, NATIVE_EV_DISCONNECTED);
	ck_assert_ptr_eq(event.conn, other);
	ck_assert_int_eq(mock_native.destroy_conn(other), 0);
	end_event(&one, NATIVE_EV_DISCONNECTED);
	end_close(&one);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("mock meet");
	TCase *t = tcase_create("two"), *none = tcase_create("none open");

	tcase_add_checked_fixture(t, setup, teardown);
	suite_add_tcase(suite, none);
	suite_add_tcase(suite, t);
	tcase_add_loop_test(none, settings_are_checked, 0, 13);
	tcase_add_test(none, memory_may_fail_at_open);
	tcase_add_test(t, memory_that_is_not_mapped_is_refused);
	tcase_add_test(t, requests_are_rejected_with_data);
	tcase_add_test(t, addresses_are_checked);
	tcase_add_test(t, a_requester_that_is_gone_cannot_be_accepted);
	tcase_add_test(t, a_device_connects_to_itself);
	return testing_run(suite);
}
