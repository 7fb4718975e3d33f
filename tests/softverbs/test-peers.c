/* SPDX-License-Identifier: BSD-2-Clause */
/* softverbs: two processes. The test is side a; a child process is side b. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdbool.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <rdma/rdma_cma.h>

#include "tests/softverbs/rig.h"

/* What the sides tell each other. */
struct card {
	uint32_t qpn;
	uint32_t rkey;
	uint64_t addr;
	uint16_t port;
};

struct peer {
	pid_t pid;
	int fd;
	struct card card;
};

static void tell(int fd, const void *data, size_t size)
{
	if (write(fd, data, size) != (ssize_t)size)
		_exit(3);
}

static void hear(int fd, void *data, size_t size)
{
	if (read(fd, data, size) != (ssize_t)size)
		_exit(4);
}

/* b: connects to what a says, then answers 's' with a SEND of its first 64 KiB, and ends in order on 'q'. */
static void peer_verbs(int fd)
{
	struct card own = {0}, other;
	struct rig r;
	char command;
	size_t i;

	rig_defaults(&r);
	rig_open_side(&r, &r.b);
	for (i = 0; i < RIG_BYTES; i++)
		r.b.buf[i] = (unsigned char)(i * 7 + 3);
	own.qpn = r.b.qp->qp_num;
	own.rkey = r.b.mr->rkey;
	own.addr = (uintptr_t)r.b.buf;
	tell(fd, &own, sizeof(own));
	hear(fd, &other, sizeof(other));
	if (rig_init(r.b.qp) || rig_rtr(&r, r.b.qp, other.qpn) || rig_rts(&r, r.b.qp))
		_exit(5);
	tell(fd, "r", 1);
	for (hear(fd, &command, 1); command == 's'; hear(fd, &command, 1)) {
		struct ibv_sge sge = {(uintptr_t)r.b.buf, 65536, r.b.mr->lkey};
		struct ibv_send_wr *bad,
			wr = {.opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1};

		wr.send_flags = IBV_SEND_SIGNALED;
		if (ibv_post_send(r.b.qp, &wr, &bad) || rig_wait(r.b.scq).status)
			_exit(6);
	}
	rig_close_side(&r.b);
}

/* b: listens, accepts one request, waits for 'q'. */
static void peer_cm(int fd)
{
	struct sockaddr_in sin = {.sin_family = AF_INET};
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_conn_param param = {.qp_num = 77};
	struct rdma_cm_event *ev;
	struct rdma_cm_id *id;
	struct card own = {0};
	char command;

	if (rdma_create_id(ch, &id, NULL, RDMA_PS_TCP) ||
	    rdma_bind_addr(id, (struct sockaddr *)&sin) || rdma_listen(id, 1))
		_exit(5);
	own.port = rdma_get_src_port(id);
	tell(fd, &own, sizeof(own));
	if (rdma_get_cm_event(ch, &ev) || rdma_accept(ev->id, &param))
		_exit(6);
	hear(fd, &command, 1);
}

/* Forks the child, which does nothing yet: a fork has to come before this process has threads. */
static struct peer peer_fork(void (*body)(int fd))
{
	struct peer p;
	int fds[2];
	char go;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	p.pid = fork();
	ck_assert_int_ge(p.pid, 0);
	if (!p.pid) {
		close(fds[0]);
		hear(fds[1], &go, 1);
		body(fds[1]);
		_exit(0);
	}
	close(fds[1]);
	p.fd = fds[0];
	return p;
}

static void peer_go(struct peer *p)
{
	tell(p->fd, "g", 1);
	hear(p->fd, &p->card, sizeof(p->card));
}

static int peer_end(struct peer *p, int sig)
{
	int status;

	if (sig)
		kill(p->pid, sig);
	else
		tell(p->fd, "q", 1);
	ck_assert_int_eq(waitpid(p->pid, &status, 0), p->pid);
	close(p->fd);
	return status;
}

static void peer_connect(struct peer *p, struct rig *r)
{
	struct card own = {0};
	char ready;

	peer_go(p);
	rig_defaults(r);
	rig_open_side(r, &r->a);
	own.qpn = r->a.qp->qp_num;
	ck_assert_int_eq(rig_init(r->a.qp), 0);
	ck_assert_int_eq(rig_rtr(r, r->a.qp, p->card.qpn), 0);
	ck_assert_int_eq(rig_rts(r, r->a.qp), 0);
	tell(p->fd, &own, sizeof(own));
	hear(p->fd, &ready, 1);
}

static int use(struct rig *r, const struct peer *p, enum ibv_wr_opcode op, uint32_t length,
	       uint32_t rkey)
{
	struct ibv_sge sge = {(uintptr_t)r->a.buf, length, r->a.mr->lkey};
	struct ibv_send_wr *bad, wr = {.opcode = op, .sg_list = &sge, .num_sge = 1};

	wr.send_flags = IBV_SEND_SIGNALED;
	wr.wr.rdma.remote_addr = p->card.addr;
	wr.wr.rdma.rkey = rkey;
	return ibv_post_send(r->a.qp, &wr, &bad);
}

static bool pattern(const unsigned char *p, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++)
		if (p[i] != (unsigned char)(i * 7 + 3))
			return false;
	return true;
}

START_TEST(bytes_cross)
{
	struct peer p = peer_fork(peer_verbs);
	struct rig r;

	peer_connect(&p, &r);
	ck_assert_int_eq(use(&r, &p, IBV_WR_RDMA_READ, RIG_BYTES, p.card.rkey), 0);
	ck_assert_int_eq(rig_wait(r.a.scq).status, IBV_WC_SUCCESS);
	ck_assert(pattern(r.a.buf, RIG_BYTES));
	memset(r.a.buf, 0x21, RIG_BYTES);
	ck_assert_int_eq(use(&r, &p, IBV_WR_RDMA_WRITE, RIG_BYTES, p.card.rkey), 0);
	ck_assert_int_eq(rig_wait(r.a.scq).status, IBV_WC_SUCCESS);
	/* What b sends back is what a wrote. */
	memset(r.a.buf, 0, RIG_BYTES);
	ck_assert_int_eq(rig_post_recv(&r.a, 0, 65536, 1), 0);
	tell(p.fd, "s", 1);
	ck_assert_int_eq(rig_wait(r.a.rcq).status, IBV_WC_SUCCESS);
	ck_assert(r.a.buf[0] == 0x21 && memcmp(r.a.buf, r.a.buf + 1, 65535) == 0);
	ck_assert_int_eq(peer_end(&p, 0), 0);
	rig_close_side(&r.a);
}
END_TEST

/* A process's death ends its device: what is sent to it is retried and given up. */
START_TEST(killed_peer_is_retried_and_given_up)
{
	struct peer p = peer_fork(peer_verbs);
	struct rig r;

	peer_connect(&p, &r);
	ck_assert_int_eq(use(&r, &p, IBV_WR_RDMA_WRITE, 8, p.card.rkey), 0);
	ck_assert_int_eq(rig_wait(r.a.scq).status, IBV_WC_SUCCESS);
	ck_assert(WIFSIGNALED(peer_end(&p, SIGKILL)));
	ck_assert_int_eq(use(&r, &p, IBV_WR_RDMA_WRITE, 8, p.card.rkey), 0);
	ck_assert_int_eq(rig_wait(r.a.scq).status, IBV_WC_RETRY_EXC_ERR);
	rig_close_side(&r.a);
}
END_TEST

/* The number of a dead process goes to the next one; nothing of the old connection reaches it. */
START_TEST(successor_of_a_killed_peer_is_another)
{
	struct peer p = peer_fork(peer_verbs), q = peer_fork(peer_verbs);
	struct rig r, s;

	peer_connect(&p, &r);
	ck_assert(WIFSIGNALED(peer_end(&p, SIGKILL)));
	peer_connect(&q, &s);
	ck_assert_uint_eq(q.card.qpn, p.card.qpn);
	ck_assert_int_eq(use(&r, &p, IBV_WR_RDMA_WRITE, 8, p.card.rkey), 0);
	ck_assert_int_eq(rig_wait(r.a.scq).status, IBV_WC_RETRY_EXC_ERR);
	ck_assert_int_eq(use(&s, &q, IBV_WR_RDMA_READ, RIG_BYTES, q.card.rkey), 0);
	ck_assert_int_eq(rig_wait(s.a.scq).status, IBV_WC_SUCCESS);
	ck_assert(pattern(s.a.buf, RIG_BYTES));
	ck_assert_int_eq(peer_end(&q, 0), 0);
	rig_close_side(&r.a);
	rig_close_side(&s.a);
}
END_TEST

START_TEST(keys_of_one_process_mean_nothing_in_another)
{
	struct peer p = peer_fork(peer_verbs);
	struct rig r;

	peer_connect(&p, &r);
	ck_assert_uint_ne(r.a.mr->rkey, p.card.rkey);
	ck_assert_int_eq(use(&r, &p, IBV_WR_RDMA_WRITE, 8, r.a.mr->rkey), 0);
	ck_assert_int_eq(rig_wait(r.a.scq).status, IBV_WC_REM_ACCESS_ERR);
	ck_assert_int_eq(peer_end(&p, 0), 0);
	rig_close_side(&r.a);
}
END_TEST

static void pass(struct rdma_event_channel *ch, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *ev;

	ck_assert_int_eq(rdma_get_cm_event(ch, &ev), 0);
	ck_assert_msg(ev->event == type, "got %s", rdma_event_str(ev->event));
	ck_assert_int_eq(rdma_ack_cm_event(ev), 0);
}

START_TEST(killed_peer_is_disconnected)
{
	struct sockaddr_in sin = {.sin_family = AF_INET};
	struct rdma_conn_param param = {.qp_num = 78};
	struct rdma_event_channel *ch;
	struct peer p = peer_fork(peer_cm);
	struct rdma_cm_id *id;

	peer_go(&p);
	sin.sin_port = p.card.port;
	ck_assert_int_eq(inet_pton(AF_INET, RIG_ADDR(0), &sin.sin_addr), 1);
	ch = rdma_create_event_channel();
	ck_assert_int_eq(rdma_create_id(ch, &id, NULL, RDMA_PS_TCP), 0);
	ck_assert_int_eq(rdma_resolve_addr(id, NULL, (struct sockaddr *)&sin, 1000), 0);
	pass(ch, RDMA_CM_EVENT_ADDR_RESOLVED);
	ck_assert_int_eq(rdma_resolve_route(id, 1000), 0);
	pass(ch, RDMA_CM_EVENT_ROUTE_RESOLVED);
	ck_assert_int_eq(rdma_connect(id, &param), 0);
	pass(ch, RDMA_CM_EVENT_CONNECT_RESPONSE);
	if (_i == 1)
		ck_assert_int_eq(rdma_establish(id), 0);
	ck_assert(WIFSIGNALED(peer_end(&p, SIGKILL)));
	pass(ch, _i == 1 ? RDMA_CM_EVENT_DISCONNECTED : RDMA_CM_EVENT_REJECTED);
	ck_assert_int_eq(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(ch);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("peers");
	TCase *t = tcase_create("peers");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, bytes_cross);
	tcase_add_test(t, killed_peer_is_retried_and_given_up);
	tcase_add_test(t, successor_of_a_killed_peer_is_another);
	tcase_add_test(t, keys_of_one_process_mean_nothing_in_another);
	tcase_add_loop_test(t, killed_peer_is_disconnected, 0, 2);
	suite_add_tcase(s, t);
	return rig_run(s);
}
