/* SPDX-License-Identifier: BSD-2-Clause */
/* softverbs: the connection manager, as a program with its own queue pairs uses it. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <rdma/rdma_cma.h>

#include "tests/softverbs/rig.h"

struct cm_rig {
	struct rdma_event_channel *ch;
	struct rdma_cm_id *listen;
	struct rdma_cm_id *active;
	struct rdma_cm_id *passive;
	struct sockaddr_in addr;
};

static struct sockaddr_in address(const char *text, uint16_t port)
{
	struct sockaddr_in sin = {.sin_family = AF_INET, .sin_port = port};

	ck_assert_int_eq(inet_pton(AF_INET, text, &sin.sin_addr), 1);
	return sin;
}

/* Takes the next event, which must be the one named; the caller acknowledges. */
static struct rdma_cm_event *expect(struct rdma_event_channel *ch, enum rdma_cm_event_type type)
{
	struct pollfd pfd = {.fd = ch->fd, .events = POLLIN};
	struct rdma_cm_event *ev;

	ck_assert_msg(poll(&pfd, 1, 10000) == 1, "no event in ten seconds, waiting for %s",
		      rdma_event_str(type));
	ck_assert_int_eq(rdma_get_cm_event(ch, &ev), 0);
	ck_assert_msg(ev->event == type, "got %s (%d), not %s", rdma_event_str(ev->event),
		      ev->status, rdma_event_str(type));
	return ev;
}

static void pass(struct rdma_event_channel *ch, enum rdma_cm_event_type type)
{
	ck_assert_int_eq(rdma_ack_cm_event(expect(ch, type)), 0);
}

/* A listener on rail 1 and an id that is resolved to it. */
static void cm_rig_open(struct cm_rig *c)
{
	struct ibv_device **list;

	memset(c, 0, sizeof(*c));
	c->ch = rdma_create_event_channel();
	ck_assert_ptr_nonnull(c->ch);
	ck_assert_int_eq(rdma_create_id(c->ch, &c->listen, c, RDMA_PS_TCP), 0);
	c->addr = address(RIG_ADDR(1), 0);
	ck_assert_int_eq(rdma_bind_addr(c->listen, (struct sockaddr *)&c->addr), 0);
	c->addr.sin_port = rdma_get_src_port(c->listen);
	ck_assert_uint_ne(c->addr.sin_port, 0);
	ck_assert_int_eq(rdma_listen(c->listen, 4), 0);
	ck_assert_int_eq(rdma_create_id(c->ch, &c->active, NULL, RDMA_PS_TCP), 0);
	ck_assert_int_eq(rdma_resolve_addr(c->active, NULL, (struct sockaddr *)&c->addr, 1000), 0);
	pass(c->ch, RDMA_CM_EVENT_ADDR_RESOLVED);
	list = ibv_get_device_list(NULL);
	ck_assert_str_eq(ibv_get_device_name(c->active->verbs->device),
			 ibv_get_device_name(list[1]));
	ibv_free_device_list(list);
	ck_assert_uint_eq(c->active->port_num, 1);
	ck_assert_int_eq(rdma_resolve_route(c->active, 1000), 0);
	pass(c->ch, RDMA_CM_EVENT_ROUTE_RESOLVED);
}

static void cm_rig_close(struct cm_rig *c)
{
	if (c->passive)
		ck_assert_int_eq(rdma_destroy_id(c->passive), 0);
	if (c->active)
		ck_assert_int_eq(rdma_destroy_id(c->active), 0);
	ck_assert_int_eq(rdma_destroy_id(c->listen), 0);
	rdma_destroy_event_channel(c->ch);
}

/* Moves a queue pair of our own by what the id says. */
static int move(struct rdma_cm_id *id, struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = {.qp_state = state};
	int mask;

	ck_assert_int_eq(rdma_init_qp_attr(id, &attr, &mask), 0);
	if (state == IBV_QPS_INIT)
		attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	return ibv_modify_qp(qp, &attr, mask);
}

static void cm_rig_request(struct cm_rig *c, uint32_t qpn, const char *data)
{
	struct rdma_conn_param param = {.qp_num = qpn,
					.responder_resources = 4,
					.initiator_depth = 2,
					.retry_count = 2,
					.rnr_retry_count = 1,
					.private_data = data,
					.private_data_len = (uint8_t)(strlen(data) + 1)};

	ck_assert_int_eq(rdma_connect(c->active, &param), 0);
}

START_TEST(connects_with_queue_pairs_of_our_own)
{
	struct rdma_conn_param param = {.responder_resources = 2, .initiator_depth = 4};
	struct rdma_cm_event *ev;
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	struct cm_rig c;
	struct rig r;

	cm_rig_open(&c);
	rig_defaults(&r);
	r.rail = 1;
	rig_open(&r);
	cm_rig_request(&c, r.a.qp->qp_num, "ticket");

	ev = expect(c.ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	ck_assert_ptr_eq(ev->listen_id, c.listen);
	c.passive = ev->id;
	/* The whole field comes, padded with zeros. */
	ck_assert_uint_eq(ev->param.conn.private_data_len, 56);
	ck_assert_str_eq(ev->param.conn.private_data, "ticket");
	ck_assert_uint_eq(ev->param.conn.qp_num, r.a.qp->qp_num);
	ck_assert_uint_eq(ev->param.conn.responder_resources, 2);
	ck_assert_uint_eq(ev->param.conn.initiator_depth, 4);
	ck_assert_int_eq(rdma_ack_cm_event(ev), 0);
	ck_assert_int_eq(move(c.passive, r.b.qp, IBV_QPS_INIT), 0);
	ck_assert_int_eq(move(c.passive, r.b.qp, IBV_QPS_RTR), 0);
	ck_assert_int_eq(move(c.passive, r.b.qp, IBV_QPS_RTS), 0);
	param.qp_num = r.b.qp->qp_num;
	param.private_data = "welcome";
	param.private_data_len = 8;
	ck_assert_int_eq(rdma_accept(c.passive, &param), 0);

	ev = expect(c.ch, RDMA_CM_EVENT_CONNECT_RESPONSE);
	ck_assert_ptr_eq(ev->id, c.active);
	ck_assert_str_eq(ev->param.conn.private_data, "welcome");
	ck_assert_int_eq(rdma_ack_cm_event(ev), 0);
	ck_assert_int_eq(move(c.active, r.a.qp, IBV_QPS_INIT), 0);
	ck_assert_int_eq(move(c.active, r.a.qp, IBV_QPS_RTR), 0);
	ck_assert_int_eq(move(c.active, r.a.qp, IBV_QPS_RTS), 0);
	ck_assert_int_eq(rdma_establish(c.active), 0);
	pass(c.ch, RDMA_CM_EVENT_ESTABLISHED);
	ck_assert_int_eq(ibv_query_qp(r.a.qp, &attr, IBV_QP_STATE, &init), 0);
	ck_assert_uint_eq(attr.retry_cnt, 2);
	ck_assert_uint_eq(attr.max_rd_atomic, 2);
	ck_assert_uint_eq(attr.max_dest_rd_atomic, 4);

	memset(r.a.buf, 0x5a, 5000);
	ck_assert_int_eq(rig_post(&r, IBV_WR_RDMA_WRITE, 0, 5000, 1), 0);
	ck_assert_int_eq(rig_wait(r.a.scq).status, IBV_WC_SUCCESS);
	ck_assert_int_eq(memcmp(r.a.buf, r.b.buf, 5000), 0);

	ck_assert_int_eq(rdma_disconnect(c.active), 0);
	ev = expect(c.ch, RDMA_CM_EVENT_DISCONNECTED);
	ck_assert_ptr_eq(ev->id, c.passive);
	rdma_ack_cm_event(ev);
	ck_assert_int_eq(rdma_disconnect(c.passive), 0);
	ev = expect(c.ch, RDMA_CM_EVENT_DISCONNECTED);
	ck_assert_ptr_eq(ev->id, c.active);
	rdma_ack_cm_event(ev);
	/* The numbers rest, and then both are told. */
	pass(c.ch, RDMA_CM_EVENT_TIMEWAIT_EXIT);
	pass(c.ch, RDMA_CM_EVENT_TIMEWAIT_EXIT);
	/* Queue pairs that are not the id's are not moved by any of that. */
	ck_assert_int_eq(ibv_query_qp(r.a.qp, &attr, IBV_QP_STATE, &init), 0);
	ck_assert_int_eq(attr.qp_state, IBV_QPS_RTS);
	rig_close(&r);
	cm_rig_close(&c);
}
END_TEST

START_TEST(rejects_with_private_data)
{
	struct rdma_cm_event *ev;
	struct cm_rig c;

	cm_rig_open(&c);
	cm_rig_request(&c, 1, "x");
	ev = expect(c.ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	c.passive = ev->id;
	rdma_ack_cm_event(ev);
	ck_assert_int_eq(rdma_reject(c.passive, "stale", 6), 0);
	ev = expect(c.ch, RDMA_CM_EVENT_REJECTED);
	ck_assert_int_eq(ev->status, 28);
	ck_assert_uint_eq(ev->param.conn.private_data_len, 148);
	ck_assert_str_eq(ev->param.conn.private_data, "stale");
	rdma_ack_cm_event(ev);
	cm_rig_close(&c);
}
END_TEST

START_TEST(destroying_a_request_rejects_it)
{
	struct rdma_cm_event *ev;
	struct cm_rig c;

	cm_rig_open(&c);
	cm_rig_request(&c, 1, "x");
	ev = expect(c.ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	c.passive = ev->id;
	rdma_ack_cm_event(ev);
	ck_assert_int_eq(rdma_destroy_id(c.passive), 0);
	c.passive = NULL;
	ev = expect(c.ch, RDMA_CM_EVENT_REJECTED);
	ck_assert_int_eq(ev->status, 28);
	rdma_ack_cm_event(ev);
	cm_rig_close(&c);
}
END_TEST

START_TEST(nobody_listens)
{
	struct rdma_cm_event *ev;
	struct cm_rig c;

	cm_rig_open(&c);
	ck_assert_int_eq(rdma_destroy_id(c.listen), 0);
	cm_rig_request(&c, 1, "x");
	ev = expect(c.ch, RDMA_CM_EVENT_REJECTED);
	ck_assert_int_eq(ev->status, 8);
	rdma_ack_cm_event(ev);
	ck_assert_int_eq(rdma_create_id(c.ch, &c.listen, NULL, RDMA_PS_TCP), 0);
	cm_rig_close(&c);
}
END_TEST

START_TEST(addresses_are_checked)
{
	struct sockaddr_in taken, foreign = address("192.0.2.1", 1);
	struct rdma_cm_event *ev;
	struct rdma_cm_id *id;
	struct cm_rig c;

	cm_rig_open(&c);
	ck_assert_int_eq(rdma_create_id(c.ch, &id, NULL, RDMA_PS_TCP), 0);
	taken = c.addr;
	ck_assert_int_eq(rdma_bind_addr(id, (struct sockaddr *)&taken), -1);
	ck_assert_int_eq(errno, EADDRINUSE);
	ck_assert_int_eq(rdma_bind_addr(id, (struct sockaddr *)&foreign), -1);
	ck_assert_int_eq(errno, ENODEV);
	ck_assert_int_eq(rdma_resolve_addr(id, NULL, (struct sockaddr *)&foreign, 100), 0);
	ev = expect(c.ch, RDMA_CM_EVENT_ADDR_ERROR);
	ck_assert_int_lt(ev->status, 0);
	rdma_ack_cm_event(ev);
	ck_assert_int_eq(rdma_destroy_id(id), 0);
	/* An id that is bound to nothing listens on any address and a port of the system's choice. */
	ck_assert_int_eq(rdma_create_id(c.ch, &id, NULL, RDMA_PS_TCP), 0);
	ck_assert_int_eq(rdma_listen(id, 1), 0);
	ck_assert_uint_ne(rdma_get_src_port(id), 0);
	ck_assert_int_eq(rdma_destroy_id(id), 0);
	cm_rig_close(&c);
}
END_TEST

/* Without a name the hints are the answer: so libfabric asks. */
START_TEST(addresses_of_the_hints)
{
	struct sockaddr_in from = address("127.0.0.1", 0), to = address("127.0.0.2", htons(4711));
	struct rdma_addrinfo hints = {.ai_flags = RAI_NUMERICHOST,
				      .ai_family = AF_INET,
				      .ai_port_space = RDMA_PS_TCP,
				      .ai_src_addr = (struct sockaddr *)&from,
				      .ai_src_len = sizeof(from),
				      .ai_dst_addr = (struct sockaddr *)&to,
				      .ai_dst_len = sizeof(to)};
	struct rdma_addrinfo *found;

	ck_assert_int_eq(rdma_getaddrinfo(NULL, NULL, &hints, &found), 0);
	ck_assert_int_eq(found->ai_family, AF_INET);
	ck_assert_int_eq(found->ai_port_space, RDMA_PS_TCP);
	ck_assert_uint_eq(found->ai_src_len, sizeof(from));
	ck_assert_mem_eq(found->ai_src_addr, &from, sizeof(from));
	ck_assert_uint_eq(found->ai_dst_len, sizeof(to));
	ck_assert_mem_eq(found->ai_dst_addr, &to, sizeof(to));
	rdma_freeaddrinfo(found);
	errno = 0;
	ck_assert_int_eq(rdma_getaddrinfo(NULL, NULL, NULL, &found), -1);
	ck_assert_int_eq(errno, EINVAL);
}
END_TEST

/* Requests that nobody has looked at are limited; the one too many is rejected. */
START_TEST(backlog_is_a_limit)
{
	struct rdma_cm_id *more[5];
	struct rdma_conn_param param = {.qp_num = 1};
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct cm_rig c;
	int i;

	cm_rig_open(&c);
	for (i = 0; i < 5; i++) {
		ck_assert_int_eq(rdma_create_id(ch, &more[i], NULL, RDMA_PS_TCP), 0);
		ck_assert_int_eq(rdma_resolve_addr(more[i], NULL, (struct sockaddr *)&c.addr, 100),
				 0);
		pass(ch, RDMA_CM_EVENT_ADDR_RESOLVED);
		ck_assert_int_eq(rdma_resolve_route(more[i], 100), 0);
		pass(ch, RDMA_CM_EVENT_ROUTE_RESOLVED);
	}
	for (i = 0; i < 5; i++)
		ck_assert_int_eq(rdma_connect(more[i], &param), 0);
	pass(ch, RDMA_CM_EVENT_REJECTED);
	for (i = 0; i < 5; i++)
		ck_assert_int_eq(rdma_destroy_id(more[i]), 0);
	cm_rig_close(&c);
	rdma_destroy_event_channel(ch);
}
END_TEST

START_TEST(channel_can_be_polled)
{
	struct rdma_cm_event *ev;
	struct cm_rig c;

	cm_rig_open(&c);
	ck_assert_int_eq(fcntl(c.ch->fd, F_SETFL, O_NONBLOCK), 0);
	ck_assert_int_eq(rdma_get_cm_event(c.ch, &ev), -1);
	ck_assert_int_eq(errno, EAGAIN);
	cm_rig_close(&c);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cm");
	TCase *t = tcase_create("cm");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, connects_with_queue_pairs_of_our_own);
	tcase_add_test(t, rejects_with_private_data);
	tcase_add_test(t, destroying_a_request_rejects_it);
	tcase_add_test(t, nobody_listens);
	tcase_add_test(t, addresses_are_checked);
	tcase_add_test(t, addresses_of_the_hints);
	tcase_add_test(t, backlog_is_a_limit);
	tcase_add_test(t, channel_can_be_polled);
	suite_add_tcase(s, t);
	return rig_run(s);
}
