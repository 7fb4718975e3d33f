/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two devices with one address: the connection manager goes by the address, and takes the first device that has it.  A
 * rail is on the device that it is named for, or is none.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <escrow/rails.h>

#include "backends/rdma/rdma.h"
#include "tests/lib/testing.h"
#include "tests/unit/rdma-host.h"
#include "tests/unit/rdma-kit.h"

#define SHARED "127.77.0.9"

static struct ibv_context *arrives_at; /* requests come in on this device, whoever listens */

int rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **event)
{
	int (*real)(struct rdma_event_channel *, struct rdma_cm_event **), rc;

	*(void **)&real = dlsym(RTLD_NEXT, "rdma_get_cm_event");
	if (!real)
		abort();
	rc = real(channel, event);
	if (!rc && arrives_at && (*event)->event == RDMA_CM_EVENT_CONNECT_REQUEST)
		(*event)->id->verbs = arrives_at;
	return rc;
}

/* ---- What is there ----------------------------------------------------------------------------- */
static struct escrow_rail rails[32];

static const struct escrow_rail *listed(const char *device, const char *address)
{
	const struct escrow_rails *table = OPS->get_extension(NULL, ESCROW_RAILS_ID);
	const struct escrow_open_args args = {
		.size = sizeof(args), .host = &rdma_host, .revision = 1, .engine_name = "test"};
	int32_t n = table->list(&args, rails, 32, sizeof(rails[0]), NULL);

	ck_assert_int_gt(n, 0);
	for (int32_t i = 0; i < n; i++)
		if (!strcmp(rails[i].device, device) && !strcmp(rails[i].address, address))
			return &rails[i];
	ck_abort_msg("%s %s is not listed", device, address);
	return NULL;
}

START_TEST(it_is_listed_as_the_other_ones)
{
	const struct escrow_rail *r = listed("softverbs0", SHARED);

	ck_assert_uint_eq(r->use, ESCROW_RAIL_USED);
	r = listed("softverbs1", SHARED);
	ck_assert_uint_eq(r->use, ESCROW_RAIL_UNUSED);
	ck_assert_msg(strstr(r->why, "softverbs0") != NULL, "%s", r->why);
	/* The next best is taken. */
	ck_assert_uint_eq(listed("softverbs1", "127.78.1.1")->use, ESCROW_RAIL_USED);
}
END_TEST

START_TEST(named_alone_it_is_refused)
{
	static const char *const with[] = {"rdma.rails=softverbs1:1:" SHARED, NULL};
	struct escrow_error error = {.size = sizeof(error)};
	struct end e;

	ck_assert_int_eq(end_try(&e, with, &error), ESCROW_E_DEVICE);
	ck_assert_msg(strstr(error.text, SHARED) && strstr(error.text, "softverbs0"), "%s",
		      error.text);
}
END_TEST

/* ---- What goes over it --------------------------------------------------------------------------- */
static struct end a, b;

START_TEST(both_rails_carry_bytes)
{
	static const char *const with[] = {"slice_bytes=4096", NULL};
	uint64_t by_a, by_b, grant, len, remote;
	uint8_t buf[4096];

	end_open(&a, 'a', with);
	end_open(&b, 'b', with);
	ends_connect(&a, &b, &by_a, &by_b);
	len = end_grant(&a, by_a, 0, END_BYTES, ESCROW_MAY_WRITE, buf, sizeof(buf), &grant);
	remote = end_import(&b, by_b, buf, len);
	/* The second one may come up later; Check ends what never does. */
	do
		ck_assert_int_eq(end_move(&b, remote, ESCROW_WRITE, 0, 0, END_BYTES).status,
				 ESCROW_OK);
	while (!end_counter(&b, "rail.1.bytes"));
	ck_assert_uint_eq(a.memory[END_BYTES - 1], 'b');
	end_close(&b);
	end_close(&a);
}
END_TEST

START_TEST(a_request_on_another_device_is_rejected)
{
	static const char *const with[] = {"rdma.rails=softverbs0", NULL};
	struct ibv_device **list = ibv_get_device_list(NULL);
	uint8_t buf[4096];
	uint64_t peer;

	end_open(&a, 'a', with);
	end_open(&b, 'b', with);
	arrives_at = ibv_open_device(list[1]);
	ck_assert_ptr_nonnull(arrives_at);
	peer = end_connect(&b, "a", buf, end_invite(&a, "b", buf, sizeof(buf)));
	ck_assert_int_eq(end_wait_of(&b, ESCROW_EV_PEER_DOWN, peer).status, ESCROW_E_REFUSED);
	ck_assert_uint_eq(end_used(&a, ESCROW_CHARGE_CONNECTIONS), 0);
	end_close(&b);
	end_close(&a);
	ibv_close_device(arrives_at);
	ibv_free_device_list(list);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("elsewhere");
	TCase *t = tcase_create("one address of two devices");

	setenv("SOFTVERBS_RAILS", "2", 1);
	setenv("SOFTVERBS_ADDRS", SHARED "," SHARED, 1);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, it_is_listed_as_the_other_ones);
	tcase_add_test(t, named_alone_it_is_refused);
	tcase_add_test(t, both_rails_carry_bytes);
	tcase_add_test(t, a_request_on_another_device_is_rejected);
	suite_add_tcase(s, t);
	return testing_run(s);
}
