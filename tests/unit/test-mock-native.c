/* SPDX-License-Identifier: BSD-2-Clause */
/* The mock's native table by itself: work, keys, queues and states, in one process. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/testing.h"
#include "tests/unit/mock-ends.h"

static struct end a, b;

static void setup(void)
{
	end_open(&a, "", 64);
	end_open(&b, "", 64);
	ends_connect(&a, &b);
}

static void teardown(void)
{
	end_close(&a);
	end_close(&b);
}

static uint64_t far_addr(uint64_t at)
{
	return (uint64_t)(uintptr_t)(b.bytes + at);
}

static struct native_wr access_wr(enum native_opcode opcode, struct native_sge *sge, uint32_t key,
				  uint64_t at, uint32_t length)
{
	struct native_wr wr = end_wr(&a, opcode, sge, 0, length);

	wr.rkey = key;
	wr.remote_addr = far_addr(at);
	return wr;
}

START_TEST(write_and_read_move_bytes)
{
	uint32_t key = end_bind(&b, b.q, ESCROW_MAY_READ | ESCROW_MAY_WRITE, 7);
	struct native_sge sge;
	struct native_wr wr = access_wr(NATIVE_WRITE, &sge, key, END_AT, END_GRANT);

	memset(a.bytes, 0x5a, END_GRANT);
	ck_assert_int_eq(end_do(&a, &wr), NATIVE_OK);
	for (uint32_t i = 0; i < END_BYTES; i++)
		testing_assert_byte(b.bytes[i], i >= END_AT && i < END_AT + END_GRANT ? 0x5a : 0,
				    i);
	for (uint32_t i = 0; i < END_GRANT; i++)
		b.bytes[END_AT + i] = (uint8_t)i;
	wr.opcode = NATIVE_READ;
	ck_assert_int_eq(end_do(&a, &wr), NATIVE_OK);
	ck_assert_mem_eq(a.bytes, b.bytes + END_AT, END_GRANT);
}
END_TEST

START_TEST(several_ranges_and_inline)
{
	uint32_t key = end_bind(&b, b.q, ESCROW_MAY_WRITE, 1);
	struct native_sge sge[3];
	struct native_wr wr = access_wr(NATIVE_WRITE, sge, key, END_AT + 1, 3);

	for (int i = 1; i < 3; i++) {
		sge[i] = sge[0];
		sge[i].addr += (uint64_t)i * 100;
	}
	sge[1].length = 0;
	wr.nsge = 3;
	memcpy(a.bytes, "abc", 3);
	memcpy(a.bytes + 200, "def", 3);
	ck_assert_int_eq(end_do(&a, &wr), NATIVE_OK);
	ck_assert_mem_eq(b.bytes + END_AT, "\0abcdef\0", 8);

	/* The bytes of an inline request are taken before post returns. */
	wr.flags |= NATIVE_INLINE;
	sge[0].key = sge[2].key = 0;
	memcpy(a.bytes, "xyz", 3);
	end_post(a.q, &wr);
	memset(a.bytes, 0, 300);
	struct native_cqe cqe;
	end_wait(&a, &cqe, 1);
	ck_assert_mem_eq(b.bytes + END_AT, "\0xyzdef\0", 8);
}
END_TEST

START_TEST(nothing_moves_before_a_poll)
{
	uint32_t key = end_bind(&b, b.q, ESCROW_MAY_WRITE, 1);
	struct native_sge sge;
	struct native_wr wr = access_wr(NATIVE_WRITE, &sge, key, END_AT, 1);
	struct native_cqe cqe;

	a.bytes[0] = 9;
	end_post(a.q, &wr);
	ck_assert_uint_eq(b.bytes[END_AT], 0);
	/* The owner's poll runs the device too; the completion is the requester's. */
	ck_assert_int_eq(mock_native.poll_cq(b.l, &cqe, 1), 0);
	ck_assert_uint_eq(b.bytes[END_AT], 9);
	ck_assert_int_eq(mock_native.poll_cq(a.l, &cqe, 1), 1);
}
END_TEST

/* ---- Keys: each row is one way in which an access is not allowed ------------------------------ */
enum spoil { NOTHING, INVALIDATED, DEALLOCATED, ELSEWHERE, TAG, INDEX };

static const struct refusal {
	const char *what;
	enum spoil spoil;
	uint32_t rights;
	enum native_opcode opcode;
	int64_t at; /* from the start of the window */
	uint32_t length;
} refusals[] = {
	{"after invalidate", INVALIDATED, 3, NATIVE_WRITE, 0, 8},
	{"read after invalidate", INVALIDATED, 3, NATIVE_READ, 0, 8},
	{"after dealloc", DEALLOCATED, 3, NATIVE_WRITE, 0, 8},
	{"bound to another connection", ELSEWHERE, 3, NATIVE_WRITE, 0, 8},
	{"another tag", TAG, 3, NATIVE_WRITE, 0, 8},
	{"another index", INDEX, 3, NATIVE_WRITE, 0, 8},
	{"begins before", NOTHING, 3, NATIVE_WRITE, -1, 8},
	{"ends behind", NOTHING, 3, NATIVE_WRITE, END_GRANT - 7, 8},
	{"longer", NOTHING, 3, NATIVE_WRITE, 0, END_GRANT + 1},
	{"read behind", NOTHING, 3, NATIVE_READ, END_GRANT, 1},
	{"wraps", NOTHING, 3, NATIVE_WRITE, INT64_MIN, 8},
	{"no right to write", NOTHING, ESCROW_MAY_READ, NATIVE_WRITE, 0, 8},
	{"no right to read", NOTHING, ESCROW_MAY_WRITE, NATIVE_READ, 0, 8},
};

static void spoil(enum spoil how, uint32_t *key)
{
	struct native_wr wr = {.id = 5, .opcode = NATIVE_INVALIDATE, .rkey = *key};

	wr.flags = NATIVE_SIGNALED;
	if (how == INVALIDATED)
		ck_assert_int_eq(end_do(&b, &wr), NATIVE_OK);
	if (how == DEALLOCATED) {
		ck_assert_int_eq(mock_native.dealloc_window(b.w), 0);
		b.w = NULL;
	}
	if (how == TAG)
		*key ^= 1;
	if (how == INDEX)
		*key ^= 0x4000;
}

START_TEST(refused_accesses_change_nothing)
{
	const struct refusal *r = &refusals[_i];
	struct native_conn *other = end_conn(&b);
	struct native_rail_info rail;
	struct native_event event;
	struct native_conn *third = end_conn(&a);
	struct native_sge sge;
	struct native_wr wr;
	uint32_t key;

	/* `other` is as good a connection of the owner as b.q */
	mock_native.rail_info(b.n, 0, &rail);
	ck_assert_int_eq(mock_native.connect(third, rail.address, NULL, 0), 0);
	event = end_event(&b, NATIVE_EV_REQUEST);
	ck_assert_int_eq(mock_native.accept(other, event.request, NULL, 0), 0);
	end_event(&a, NATIVE_EV_ESTABLISHED);
	end_event(&b, NATIVE_EV_ESTABLISHED);

	key = end_bind(&b, r->spoil == ELSEWHERE ? other : b.q, r->rights, 3);
	spoil(r->spoil, &key);
	memset(a.bytes, 0xee, END_BYTES);
	wr = access_wr(r->opcode, &sge, key, END_AT, r->length);
	wr.remote_addr += (uint64_t)r->at;
	ck_assert_msg(end_do(&a, &wr) == NATIVE_REMOTE_ACCESS, "%s", r->what);
	for (uint32_t i = 0; i < END_BYTES; i++)
		if (b.bytes[i])
			ck_abort_msg("%s: byte %u was written", r->what, i);

	/* Both ends are in error; work of either is flushed. */
	event = end_event(&b, NATIVE_EV_CONN_ERROR);
	ck_assert_ptr_eq(event.conn, b.q);
	ck_assert_int_eq(end_do(&a, &wr), NATIVE_FLUSHED);
	wr = end_wr(&b, NATIVE_SEND, &sge, 0, 1);
	ck_assert_int_eq(end_do(&b, &wr), NATIVE_FLUSHED);
	ck_assert_int_eq(mock_native.destroy_conn(third), 0);
	ck_assert_int_eq(mock_native.destroy_conn(other), 0);
}
END_TEST

START_TEST(bind_rules)
{
	static const struct {
		int64_t at;
		uint64_t length;
		uint32_t index;
		bool bound;
		enum native_status status;
	} rows[] = {
		{0, END_BYTES, 0, false, NATIVE_OK},     {0, 0, 0, false, NATIVE_LOCAL},
		{1, END_BYTES, 0, false, NATIVE_LOCAL},  {-1, 1, 0, false, NATIVE_LOCAL},
		{0, UINT64_MAX, 0, false, NATIVE_LOCAL}, {0, 16, 0x100, false, NATIVE_LOCAL},
		{0, 16, 0, true, NATIVE_LOCAL}, /* it is not free */
	};
	struct native_wr wr = {
		.id = 3, .opcode = NATIVE_BIND, .window = b.w, .region = b.r, .rights = 3};

	wr.flags = NATIVE_SIGNALED;
	if (rows[_i].bound)
		end_bind(&b, b.q, 3, 9);
	wr.addr = (uint64_t)(uintptr_t)b.bytes + (uint64_t)rows[_i].at;
	wr.length = rows[_i].length;
	wr.rkey = (mock_native.window_key(b.w) + 1) ^ rows[_i].index;
	ck_assert_int_eq(end_do(&b, &wr), rows[_i].status);
}
END_TEST

START_TEST(keys_are_recycled_last_in_first_out)
{
	uint32_t first = mock_native.window_key(b.w);

	end_bind(&b, b.q, 3, 200);
	ck_assert_int_eq(mock_native.deregister_region(b.r), EINVAL); /* a window is bound on it */
	ck_assert_int_eq(mock_native.dealloc_window(b.w), 0);
	ck_assert_int_eq(mock_native.alloc_window(b.c, &b.w), 0);
	ck_assert_uint_eq(mock_native.window_key(b.w), first);
}
END_TEST

START_TEST(invalidate_needs_the_whole_key_and_the_connection)
{
	struct native_wr wr = {.id = 4, .opcode = NATIVE_INVALIDATE, .flags = NATIVE_SIGNALED};

	wr.rkey = end_bind(&b, b.q, 3, 200) ^ 1;
	ck_assert_int_eq(end_do(&b, &wr), NATIVE_LOCAL);
	wr.rkey ^= 1; /* the connection is in error now: flushed, and the window stays bound */
	ck_assert_int_eq(end_do(&b, &wr), NATIVE_FLUSHED);
	ck_assert_int_eq(mock_native.deregister_region(b.r), EINVAL);
}
END_TEST

/* ---- Messages ------------------------------------------------------------------------------- */
static void receive(struct end *e, uint64_t id, uint32_t at, uint32_t length)
{
	ck_assert_int_eq(
		mock_native.post_recv(e->q, id, e->r, (uint64_t)(uintptr_t)(e->bytes + at), length),
		0);
}

START_TEST(send_takes_the_oldest_receive)
{
	struct native_sge sge;
	struct native_wr wr = end_wr(&a, NATIVE_SEND, &sge, 0, 5);
	struct native_cqe cqe[2];

	receive(&b, 100, 1000, 64);
	receive(&b, 101, 2000, 64);
	memcpy(a.bytes, "first", 5);
	ck_assert_int_eq(end_do(&a, &wr), NATIVE_OK);
	memcpy(a.bytes, "other", 5);
	ck_assert_int_eq(end_do(&a, &wr), NATIVE_OK);
	end_wait(&b, cqe, 2);
	for (unsigned int i = 0; i < 2; i++) {
		ck_assert_uint_eq(cqe[i].id, 100 + i);
		ck_assert_int_eq(cqe[i].status, NATIVE_OK);
		ck_assert_uint_eq(cqe[i].bytes, 5);
		ck_assert_uint_eq(cqe[i].kind & NATIVE_RECV, NATIVE_RECV);
	}
	ck_assert_mem_eq(b.bytes + 1000, "first", 6);
	ck_assert_mem_eq(b.bytes + 2000, "other", 6);
}
END_TEST

START_TEST(send_waits_for_a_receive_and_gives_up)
{
	struct native_sge sge;
	struct native_wr wr = end_wr(&a, NATIVE_SEND, &sge, 0, 5);
	struct native_cqe cqe;

	end_post(a.q, &wr);
	for (int i = 0; i < 4096; i++)
		ck_assert_int_eq(mock_native.poll_cq(a.l, &cqe, 1), 0);
	receive(&b, 1, 0, 5);
	end_wait(&a, &cqe, 1);
	ck_assert_int_eq(cqe.status, NATIVE_OK);
	ck_assert_int_eq(end_do(&a, &wr), NATIVE_RNR);
	/* the receiver's end lives on */
	receive(&b, 2, 0, 5);
	end_wait(&b, &cqe, 1);
	ck_assert_uint_eq(cqe.id, 1);
	ck_assert_int_eq(mock_native.poll_cq(b.l, &cqe, 1), 0);
}
END_TEST

START_TEST(too_long_a_message_is_an_error_of_both)
{
	struct native_sge sge;
	struct native_wr wr = end_wr(&a, NATIVE_SEND, &sge, 0, 65);
	struct native_cqe cqe;

	memset(a.bytes, 1, 65);
	receive(&b, 8, 0, 64);
	ck_assert_int_eq(end_do(&a, &wr), NATIVE_REMOTE);
	end_wait(&b, &cqe, 1);
	ck_assert_uint_eq(cqe.id, 8);
	ck_assert_int_eq(cqe.status, NATIVE_LOCAL);
	ck_assert_uint_eq(b.bytes[0], 0);
	end_event(&b, NATIVE_EV_CONN_ERROR);
}
END_TEST

/* ---- Queues and states ---------------------------------------------------------------------- */
START_TEST(flush_tells_every_request_in_order)
{
	struct native_sge sge;
	struct native_wr wr = end_wr(&a, NATIVE_SEND, &sge, 0, 1);
	struct native_cqe cqe[12];

	for (uint64_t i = 0; i < 3; i++)
		receive(&a, 50 + i, 0, 1);
	ck_assert_int_eq(mock_native.conn_err(a.q), 0);
	for (uint64_t i = 0; i < 9; i++) {
		wr.id = i;
		wr.flags = i % 4 ? 0 : NATIVE_SIGNALED; /* unsignaled ones complete too */
		end_post(a.q, &wr);
	}
	end_wait(&a, cqe, 12);
	/* each queue in its own order */
	for (uint64_t i = 0, work = 0, receives = 50; i < 12; i++) {
		ck_assert_int_eq(cqe[i].status, NATIVE_FLUSHED);
		ck_assert_uint_eq(cqe[i].id, cqe[i].id < 50 ? work++ : receives++);
	}
	ck_assert_int_eq(mock_native.poll_cq(a.l, cqe, 12), 0);
}
END_TEST

START_TEST(slots_of_unsignaled_work_come_back_with_the_next_completion)
{
	uint32_t key = end_bind(&b, b.q, 3, 1), posted;
	struct native_sge sge;
	struct native_wr wr[END_DEPTH + 1];
	struct native_cqe cqe[2];

	for (unsigned int i = 0; i <= END_DEPTH; i++) {
		wr[i] = access_wr(NATIVE_WRITE, &sge, key, END_AT, 1);
		wr[i].id = i;
		wr[i].flags = i == END_DEPTH - 1 ? NATIVE_SIGNALED : 0;
	}
	ck_assert_int_eq(mock_native.post(a.q, wr, END_DEPTH + 1, &posted), ENOMEM);
	ck_assert_uint_eq(posted, END_DEPTH);
	end_wait(&a, cqe, 1);
	ck_assert_uint_eq(cqe[0].id, END_DEPTH - 1);
	ck_assert_int_eq(mock_native.poll_cq(a.l, cqe, 2), 0);
	ck_assert_int_eq(mock_native.post(a.q, wr, END_DEPTH - 1, &posted), 0);
	ck_assert_int_eq(mock_native.poll_cq(a.l, cqe, 2), 0);
	ck_assert_int_eq(mock_native.post(a.q, wr, 2, &posted), ENOMEM); /* none was told */
	ck_assert_uint_eq(posted, 1);
}
END_TEST

START_TEST(reset_deletes_what_was_not_polled)
{
	uint32_t key = end_bind(&b, b.q, 3, 1), posted = 7;
	struct native_sge sge;
	struct native_wr wr = access_wr(NATIVE_WRITE, &sge, key, END_AT, 1);
	struct native_cqe cqe;

	end_post(a.q, &wr);
	ck_assert_int_eq(mock_native.poll_cq(b.l, &cqe, 1), 0); /* executed, told, not polled */
	end_post(a.q, &wr);
	ck_assert_int_eq(mock_native.conn_reset(a.q), 0);
	ck_assert_int_eq(mock_native.poll_cq(a.l, &cqe, 1), 0);
	ck_assert_int_eq(mock_native.post(a.q, &wr, 1, &posted), EINVAL);
	ck_assert_uint_eq(posted, 0);
	ck_assert_int_eq(mock_native.conn_err(a.q), EINVAL);
	end_event(&b, NATIVE_EV_DISCONNECTED);
	/* and the other end gets no answer any more */
	wr = end_wr(&b, NATIVE_SEND, &sge, 0, 1);
	ck_assert_int_eq(end_do(&b, &wr), NATIVE_RETRY);
}
END_TEST

START_TEST(overrun_breaks_the_lane)
{
	struct end small;
	struct native_sge sge;
	struct native_wr wr;
	struct native_cqe cqe;
	struct native_event event;

	ck_assert_int_eq(mock_native.destroy_conn(b.q), 0);
	end_event(&a, NATIVE_EV_DISCONNECTED);
	ck_assert_int_eq(mock_native.destroy_conn(a.q), 0);
	b.q = NULL;
	end_open(&small, "", 3);
	ends_connect(&small, &a);
	wr = end_wr(&small, NATIVE_WRITE, &sge, 0, 0);
	for (int i = 0; i < 3; i++)
		end_post(small.q, &wr);
	ck_assert_int_eq(mock_native.poll_cq(a.l, &cqe, 1), 0);
	ck_assert_int_eq(mock_native.poll_cq(small.l, &cqe, 1), 1); /* three was not too much */
	end_post(small.q, &wr);
	end_post(small.q, &wr);
	ck_assert_int_lt(mock_native.poll_cq(small.l, &cqe, 1), 0);
	ck_assert_int_lt(mock_native.poll_cq(small.l, &cqe, 1), 0);
	event = end_event(&small, NATIVE_EV_LANE_ERROR);
	ck_assert_ptr_eq(event.lane, small.l);
	end_close(&small);
}
END_TEST

START_TEST(destroys_are_refused_while_children_live)
{
	ck_assert_int_eq(mock_native.destroy_cq(a.l), EBUSY);
	ck_assert_int_eq(mock_native.destroy_channel(a.l), EBUSY);
	ck_assert_int_eq(mock_native.dealloc_pd(a.c), EBUSY);
	ck_assert_int_eq(mock_native.close_device(a.c), EBUSY);
}
END_TEST

START_TEST(bad_posts_are_refused)
{
	struct native_sge sge, many[5];
	struct native_wr wr = end_wr(&a, NATIVE_WRITE, &sge, 0, 8);
	uint32_t posted;

	for (int i = 0; i < 5; i++)
		many[i] = sge;
	wr.sge = many;
	wr.nsge = 5;
	ck_assert_int_eq(mock_native.post(a.q, &wr, 1, &posted), EINVAL);
	wr.nsge = 1;
	wr.flags = NATIVE_INLINE;
	many[0].length = 65;
	ck_assert_int_eq(mock_native.post(a.q, &wr, 1, &posted), EINVAL);
	ck_assert_uint_eq(posted, 0);
	ck_assert_int_eq(mock_native.post_recv(a.q, 1, b.r, 0, 1), EINVAL);
}
END_TEST

START_TEST(a_range_outside_its_region_is_a_local_error)
{
	uint32_t key = end_bind(&b, b.q, 3, 1);
	struct native_sge sge;
	struct native_wr wr = access_wr(NATIVE_WRITE, &sge, key, END_AT, 8);

	sge.addr += END_BYTES - 7;
	ck_assert_int_eq(end_do(&a, &wr), NATIVE_LOCAL);
	ck_assert_uint_eq(b.bytes[END_AT], 0);
}
END_TEST

/* Keys are of one context, and no key is 0. */
START_TEST(a_key_of_another_context_is_a_local_error)
{
	uint32_t key = end_bind(&b, b.q, 3, 1);
	struct native_sge sge;
	struct native_wr wr = access_wr(NATIVE_WRITE, &sge, key, END_AT, 8);

	a.bytes[0] = 9;
	sge.key = _i ? mock_native.region_key(b.r) : 0;
	ck_assert_int_eq(end_do(&a, &wr), NATIVE_LOCAL);
	ck_assert_uint_eq(b.bytes[END_AT], 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("mock native");
	TCase *t = tcase_create("work");

	tcase_add_checked_fixture(t, setup, teardown);
	suite_add_tcase(suite, t);
	tcase_add_test(t, write_and_read_move_bytes);
	tcase_add_test(t, several_ranges_and_inline);
	tcase_add_test(t, nothing_moves_before_a_poll);
	tcase_add_loop_test(t, refused_accesses_change_nothing, 0,
			    sizeof(refusals) / sizeof(refusals[0]));
	tcase_add_loop_test(t, bind_rules, 0, 7);
	tcase_add_test(t, keys_are_recycled_last_in_first_out);
	tcase_add_test(t, invalidate_needs_the_whole_key_and_the_connection);
	tcase_add_test(t, send_takes_the_oldest_receive);
	tcase_add_test(t, send_waits_for_a_receive_and_gives_up);
	tcase_add_test(t, too_long_a_message_is_an_error_of_both);
	tcase_add_test(t, flush_tells_every_request_in_order);
	tcase_add_test(t, slots_of_unsignaled_work_come_back_with_the_next_completion);
	tcase_add_test(t, reset_deletes_what_was_not_polled);
	tcase_add_test(t, overrun_breaks_the_lane);
	tcase_add_test(t, destroys_are_refused_while_children_live);
	tcase_add_test(t, bad_posts_are_refused);
	tcase_add_test(t, a_range_outside_its_region_is_a_local_error);
	tcase_add_loop_test(t, a_key_of_another_context_is_a_local_error, 0, 2);
	return testing_run(suite);
}
