/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The mock between two processes.  The owner is this program, run again as a child: it lends one
 * window to whoever connects, says where on its standard output, and then does nothing until its
 * standard input ends: its memory is served without it.
 */
#include "config.h" /* pipe2 */

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backends/mock/packet.h"
#include "tests/lib/testing.h"
#include "tests/unit/mock-ends.h"

extern char **environ;
static char self[4096]; /* the path of this program */

/* What the owner tells through its pipe. */
struct lent {
	uint8_t address[NATIVE_ADDRESS_BYTES];
	uint64_t addr;
	uint32_t key;
	uint32_t length;
};

struct owner {
	pid_t pid;
	int in, out; /* its standard input and output */
	struct lent lent;
};

/* ---- The child ------------------------------------------------------------------------------ */
static struct native_request *wait_for_request(struct end *e)
{
	struct pollfd p = {.fd = mock_native.event_fd(e->n), .events = POLLIN};
	struct native_event event;

	for (;;) {
		if (!mock_native.next_event(e->n, &event))
			poll(&p, 1, -1);
		else if (event.kind == NATIVE_EV_REQUEST)
			return event.request;
	}
}

static void say(const struct lent *lent)
{
	if (write(1, lent, sizeof(*lent)) != (ssize_t)sizeof(*lent))
		_exit(1);
}

static int owner_main(const char *how)
{
	struct lent lent = {.length = END_BYTES};
	struct native_rail_info rail;
	struct native_wr bind;
	struct native_cqe cqe;
	struct end e;
	char byte;

	ends_outside_check = true;
	end_open(&e, how, 64);
	mock_native.rail_info(e.n, 0, &rail);
	memcpy(lent.address, rail.address, sizeof(lent.address));
	lent.addr = (uint64_t)(uintptr_t)e.bytes;
	say(&lent);
	e.q = end_conn(&e);
	for (uint64_t i = 0; i < 4; i++)
		mock_native.post_recv(e.q, i, e.r, lent.addr + 65536 * i, 65536);
	if (mock_native.accept(e.q, wait_for_request(&e), "in", 2))
		return 1;
	lent.key = mock_native.window_key(e.w) + 1;
	bind = (struct native_wr){.opcode = NATIVE_BIND,
				  .flags = NATIVE_SIGNALED,
				  .window = e.w,
				  .region = e.r,
				  .addr = lent.addr,
				  .length = END_BYTES,
				  .rkey = lent.key,
				  .rights = ESCROW_MAY_READ | ESCROW_MAY_WRITE};
	end_post(e.q, &bind);
	end_wait(&e, &cqe, 1);
	say(&lent);
	while (read(0, &byte, 1) > 0)
		;
	end_close(&e);
	return 0;
}

/* ---- The parent ----------------------------------------------------------------------------- */
static void hear(struct owner *o)
{
	size_t got = 0;

	while (got < sizeof(o->lent)) {
		ssize_t n = read(o->out, (char *)&o->lent + got, sizeof(o->lent) - got);

		ck_assert_msg(n > 0, "the owner has ended");
		got += (size_t)n;
	}
}

static void owner_start(struct owner *o, const char *how)
{
	char role[] = "owner";
	char *argv[] = {self, role, (char *)(uintptr_t)how, NULL};
	posix_spawn_file_actions_t actions;
	int in[2], out[2];

	ck_assert_int_eq(pipe2(in, O_CLOEXEC) | pipe2(out, O_CLOEXEC), 0);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, in[0], 0);
	posix_spawn_file_actions_adddup2(&actions, out[1], 1);
	ck_assert_int_eq(posix_spawn(&o->pid, self, &actions, NULL, argv, environ), 0);
	posix_spawn_file_actions_destroy(&actions);
	close(in[0]);
	close(out[1]);
	o->in = in[1];
	o->out = out[0];
	hear(o);
}

static void owner_end(struct owner *o, bool by_force)
{
	int status;

	if (by_force)
		ck_assert_int_eq(kill(o->pid, SIGKILL), 0);
	close(o->in);
	ck_assert_int_eq(waitpid(o->pid, &status, 0), o->pid);
	close(o->out);
	if (!by_force)
		ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x", status);
}

static struct native_event wait_event(struct end *e)
{
	struct pollfd p = {.fd = mock_native.event_fd(e->n), .events = POLLIN};
	struct native_event event;

	memset(&event, 0, sizeof(event));
	while (!mock_native.next_event(e->n, &event))
		poll(&p, 1, -1);
	return event;
}

/* As a host that sleeps: arm, wait, poll. */
static struct native_cqe wait_cqe(struct end *e)
{
	struct pollfd p[2] = {{.fd = mock_native.lane_fd(e->l), .events = POLLIN},
			      {.fd = mock_native.event_fd(e->n), .events = POLLIN}};
	struct native_event event;
	struct native_cqe cqe;

	while (mock_native.poll_cq(e->l, &cqe, 1) == 0) {
		mock_native.arm_cq(e->l);
		poll(p, 2, -1);
		mock_native.take_wakeups(e->l);
		if (p[1].revents)
			mock_native.next_event(e->n, &event);
	}
	return cqe;
}

static void meet(struct end *e, struct owner *o, const char *how, const char *owners)
{
	struct native_event event;

	owner_start(o, owners);
	end_open(e, how, 64);
	e->q = end_conn(e);
	ck_assert_int_eq(mock_native.connect(e->q, o->lent.address, "knock", 5), 0);
	event = wait_event(e);
	ck_assert_int_eq(event.kind, NATIVE_EV_ESTABLISHED);
	ck_assert_uint_eq(event.data_len, 2);
	ck_assert_mem_eq(event.data, "in", 2);
	hear(o);
}

static enum native_status far_do(struct end *e, struct owner *o, enum native_opcode opcode,
				 uint64_t at, uint32_t length)
{
	struct native_sge sge;
	struct native_wr wr = end_wr(e, opcode, &sge, 0, length);

	wr.rkey = o->lent.key;
	wr.remote_addr = o->lent.addr + at;
	end_post(e->q, &wr);
	return wait_cqe(e).status;
}

static const char *const settings[] = {"mock.thread=1", "mock.thread=0"};

START_TEST(bytes_move_while_the_owner_does_nothing)
{
	struct owner o;
	struct end e;

	meet(&e, &o, settings[_i], "mock.thread=1");
	for (uint32_t i = 0; i < END_BYTES; i++)
		e.bytes[i] = (uint8_t)(i * 11 >> 4);
	ck_assert_int_eq(far_do(&e, &o, NATIVE_WRITE, 0, END_BYTES), NATIVE_OK);
	memset(e.bytes, 0, END_BYTES);
	ck_assert_int_eq(far_do(&e, &o, NATIVE_READ, 0, END_BYTES), NATIVE_OK);
	for (uint32_t i = 0; i < END_BYTES; i++)
		testing_assert_byte(e.bytes[i], (uint8_t)(i * 11 >> 4), i);
	ck_assert_int_eq(far_do(&e, &o, NATIVE_WRITE, 0, 0), NATIVE_OK);
	ck_assert_int_eq(far_do(&e, &o, NATIVE_READ, 0, 0), NATIVE_OK);
	/* messages: two packets, an empty one, and they are where the receives were */
	memset(e.bytes, 0x77, 40000);
	ck_assert_int_eq(far_do(&e, &o, NATIVE_SEND, 0, 40000), NATIVE_OK);
	ck_assert_int_eq(far_do(&e, &o, NATIVE_SEND, 0, 0), NATIVE_OK);
	ck_assert_int_eq(far_do(&e, &o, NATIVE_READ, 39999, 2), NATIVE_OK);
	ck_assert_uint_eq(e.bytes[0], 0x77);
	ck_assert_uint_eq(e.bytes[1], (uint8_t)(40000 * 11 >> 4));
	end_close(&e);
	owner_end(&o, false);
}
END_TEST

START_TEST(foreign_accesses_are_refused_by_the_owner)
{
	static const struct {
		enum native_opcode opcode;
		uint64_t at;
		uint32_t length, key;
	} rows[] = {
		{NATIVE_WRITE, 1, END_BYTES, 0},  {NATIVE_READ, 1, END_BYTES, 0},
		{NATIVE_WRITE, UINT64_MAX, 2, 0}, {NATIVE_WRITE, 0, 1, 1},
		{NATIVE_READ, 0, 1, 0x100},
	};
	struct owner o;
	struct end e;

	meet(&e, &o, "", "");
	o.lent.key ^= rows[_i].key;
	ck_assert_int_eq(far_do(&e, &o, rows[_i].opcode, rows[_i].at, rows[_i].length),
			 NATIVE_REMOTE_ACCESS);
	ck_assert_int_eq(far_do(&e, &o, NATIVE_WRITE, 0, 1), NATIVE_FLUSHED);
	end_close(&e);
	owner_end(&o, false);
}
END_TEST

START_TEST(a_message_without_a_receive_ends_rnr)
{
	struct owner o;
	struct end e;

	meet(&e, &o, "mock.rnr=3", "");
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(far_do(&e, &o, NATIVE_SEND, 0, 50000), NATIVE_OK);
	ck_assert_int_eq(far_do(&e, &o, NATIVE_SEND, 0, 50000), NATIVE_RNR);
	end_close(&e);
	owner_end(&o, false);
}
END_TEST

START_TEST(a_killed_peer_is_an_error_of_its_connection)
{
	struct native_event event;
	struct owner o;
	struct end e;

	meet(&e, &o, settings[_i], "");
	owner_end(&o, true);
	event = wait_event(&e);
	ck_assert_int_eq(event.kind, NATIVE_EV_DISCONNECTED);
	ck_assert_ptr_eq(event.conn, e.q);
	ck_assert_int_eq(far_do(&e, &o, NATIVE_WRITE, 0, 64), NATIVE_RETRY);
	end_close(&e);
}
END_TEST

START_TEST(a_goodbye_is_told)
{
	struct native_event event;
	struct owner o;
	struct end e;

	meet(&e, &o, "", "");
	owner_end(&o, false);
	event = wait_event(&e);
	ck_assert_int_eq(event.kind, NATIVE_EV_DISCONNECTED);
	end_close(&e);
}
END_TEST

START_TEST(a_held_owner_answers_when_it_runs)
{
	struct native_sge sge;
	struct native_wr wr;
	struct native_cqe cqe;
	struct owner o;
	struct end e;

	meet(&e, &o, "", "");
	ck_assert_int_eq(mock_native.fault(e.n, "nic=hold"), 0);
	wr = end_wr(&e, NATIVE_WRITE, &sge, 0, 8);
	wr.rkey = o.lent.key;
	wr.remote_addr = o.lent.addr;
	end_post(e.q, &wr);
	for (int i = 0; i < 50; i++)
		ck_assert_int_eq(mock_native.poll_cq(e.l, &cqe, 1), 0);
	ck_assert_int_eq(mock_native.fault(e.n, "nic=run"), 0);
	cqe = wait_cqe(&e);
	ck_assert_int_eq(cqe.status, NATIVE_OK);
	end_close(&e);
	owner_end(&o, false);
}
END_TEST

/* ---- Hostile bytes --------------------------------------------------------------------------- */
/* A socket to the owner, without our device in between. */
static int raw_dial(const struct owner *o)
{
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	int n = snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1, "escrow-mock-");

	for (int i = 0; i < 16; i++)
		n += snprintf(name.sun_path + 1 + n, sizeof(name.sun_path) - 1 - (size_t)n, "%02x",
			      o->lent.address[8 + i]);
	ck_assert_int_eq(
		connect(fd, (struct sockaddr *)&name,
			(socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)),
		0);
	return fd;
}

static uint32_t chance(uint32_t *seed)
{
	*seed = *seed * 1664525u + 1013904223u;
	return *seed >> 8;
}

static void raw_packet(uint8_t *room, enum packet_kind kind, uint32_t payload)
{
	struct packet p = {.magic = PACKET_MAGIC,
			   .version = PACKET_VERSION,
			   .kind = (uint16_t)kind,
			   .payload = payload};

	memcpy(room, &p, sizeof(p));
}

static void knock_rightly(struct owner *o)
{
	struct end e;

	end_open(&e, "", 64);
	e.q = end_conn(&e);
	ck_assert_int_eq(mock_native.connect(e.q, o->lent.address, NULL, 0), 0);
	ck_assert_int_eq(wait_event(&e).kind, NATIVE_EV_ESTABLISHED);
	hear(o);
	ck_assert_int_eq(far_do(&e, o, NATIVE_WRITE, 0, 64), NATIVE_OK);
	end_close(&e);
}

/* Who knocks and says nothing keeps nobody out. */
START_TEST(a_silent_knock)
{
	struct owner o;
	int silent;

	owner_start(&o, "");
	silent = raw_dial(&o);
	knock_rightly(&o);
	close(silent);
	owner_end(&o, false);
}
END_TEST

START_TEST(hostile_bytes_end_only_their_own_connection)
{
	uint32_t seed = 20240u + (uint32_t)_i;
	uint8_t room[256];
	struct owner o;

	owner_start(&o, "");
	/* Knocks: noise, truncated, wrong incarnation. Before who knocks rightly. */
	for (int i = 0; i < 100; i++) {
		int fd = raw_dial(&o);
		uint32_t length = chance(&seed) % sizeof(room);

		for (uint32_t j = 0; j < length; j++)
			room[j] = (uint8_t)chance(&seed);
		if (i % 3 == 0)
			raw_packet(room, PACKET_HELLO, 16);
		(void)!send(fd, room, length, MSG_NOSIGNAL);
		close(fd);
	}
	knock_rightly(&o);
	owner_end(&o, false);
}
END_TEST

START_TEST(hostile_packets_never_leave_the_window)
{
	uint32_t seed = 777u + (uint32_t)_i;
	uint8_t room[sizeof(struct packet) + 64] = {0};
	struct packet *p = (struct packet *)room;
	struct owner o;
	int fd;

	owner_start(&o, "");
	fd = raw_dial(&o);
	raw_packet(room, PACKET_HELLO, 16);
	memcpy(room + sizeof(*p), o.lent.address + 8, 16);
	ck_assert_int_gt(send(fd, room, sizeof(*p) + 16, 0), 0);
	hear(&o); /* it has accepted, and lent */
	for (int i = 0; i < 200; i++) {
		uint32_t payload = chance(&seed) % 65;

		raw_packet(room, chance(&seed) % 16, payload);
		p->rkey = chance(&seed) % 4 ? o.lent.key : chance(&seed);
		p->addr = o.lent.addr + (uint64_t)(int64_t)(int32_t)(chance(&seed) << 8);
		p->total = chance(&seed) % 4 ? payload : UINT64_MAX >> (chance(&seed) % 64);
		p->offset = chance(&seed) % 4 ? 0 : UINT64_MAX >> (chance(&seed) % 64);
		if (chance(&seed) % 8 == 0)
			room[chance(&seed) % sizeof(*p)] ^= (uint8_t)chance(&seed);
		if (send(fd, room, sizeof(*p) + payload, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
			break;
	}
	close(fd);
	owner_end(&o, false); /* alive, and no sanitizer has anything to say */
}
END_TEST

int main(int argc, char **argv)
{
	Suite *suite;
	TCase *t;

	if (argc == 3 && strcmp(argv[1], "owner") == 0)
		return owner_main(argv[2]);
	/* Not by its name in /proc, which is valgrind's own program when that runs us. */
	if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0)
		return testing_skip("no /proc/self/exe");
	suite = suite_create("mock process");
	t = tcase_create("two processes");
	tcase_set_timeout(t, 60); /* of a machine that does much else, under a sanitizer */
	suite_add_tcase(suite, t);
	tcase_add_loop_test(t, bytes_move_while_the_owner_does_nothing, 0, 2);
	tcase_add_loop_test(t, foreign_accesses_are_refused_by_the_owner, 0, 5);
	tcase_add_test(t, a_message_without_a_receive_ends_rnr);
	tcase_add_loop_test(t, a_killed_peer_is_an_error_of_its_connection, 0, 2);
	tcase_add_test(t, a_goodbye_is_told);
	tcase_add_test(t, a_held_owner_answers_when_it_runs);
	tcase_add_test(t, a_silent_knock);
	tcase_add_loop_test(t, hostile_bytes_end_only_their_own_connection, 0, 4);
	tcase_add_loop_test(t, hostile_packets_never_leave_the_window, 0, 16);
	return testing_run(suite);
}
