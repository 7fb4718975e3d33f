/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A process dies that has lent memory which it shares with another one, and a peer keeps its keys: why
 * docs/process-death.md says to wait for the supervisor's fence.
 *
 * The test is the survivor and the peer at once: it maps the memory and holds an engine with keys to it.
 * Late bytes are shown, not hoped for: the survivor takes the memory back, and then the peer writes.  The
 * owner is this program again; it says "engine INCARNATION" itself, as a host on the bare table does.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/hang.h"
#include "tests/lib/testing.h"
#include "tests/unit/rdma-kit.h"
#include "tests/unit/victim.h"

#define HANG_S 110u
#define PAGE 4096u
#define FD_MEMORY VICTIM_MORE
#define FD_GO (VICTIM_MORE + 1)      /* a forked holder lives until this one ends */
#define FD_OUTSIDE (VICTIM_MORE + 2) /* where device files are handed on */
#define FILES_MAX 32

static const char *const patient[] = {PATIENT, NULL};

/* In the first page; what is lent follows. */
struct shared {
	pthread_mutex_t mutex; /* robust */
};

/* ---- The owner --------------------------------------------------------------------------------------- */
static int dial(const char *path)
{
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(name.sun_path, sizeof(name.sun_path), "%s", path);
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&name, sizeof(name)), 0);
	return fd;
}

static void announce(struct end *e)
{
	struct escrow_limits limits = {.size = sizeof(limits)};
	const char *path = getenv("ESCROW_SUPERVISOR");
	char line[64] = "engine ";
	int fd;

	if (!path)
		return;
	ck_assert_int_eq(OPS->query(e->engine, &limits), ESCROW_OK);
	for (int i = 0; i < 16; i++)
		sprintf(line + 7 + 2 * i, "%02x", limits.incarnation[i]);
	line[39] = '\n';
	fd = dial(path);
	ck_assert_int_eq(write(fd, line, 40), 40);
	ck_assert_int_eq(read(fd, line, 6), 6);
	ck_assert_mem_eq(line, "known ", 6);
	close(fd);
}

/* A child that was forked without a thought, and has all that its parent had. */
static void leave_a_holder(void)
{
	char byte;

	if (fork() == 0) {
		close(VICTIM_IN);
		close(VICTIM_OUT);
		while (read(FD_GO, &byte, 1) > 0)
			;
		_exit(0);
	}
}

/* The files of the device, sent to a process that no supervisor started. */
static void hand_on_files(void)
{
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(FILES_MAX * sizeof(int))];
	} control = {.header = {.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
	char word[] = "f";
	struct iovec byte = {.iov_base = word, .iov_len = 1};
	struct msghdr message = {.msg_iov = &byte, .msg_iovlen = 1, .msg_control = &control};
	int *files = (int *)(void *)CMSG_DATA(&control.header);
	char link[64], target[256];
	size_t n = 0;

	for (int fd = 0; fd < 256 && n < FILES_MAX; fd++) {
		ssize_t len;

		snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
		len = readlink(link, target, sizeof(target) - 1);
		target[len > 0 ? len : 0] = 0;
		if (strncmp(target, "/dev/infiniband/", 16) == 0)
			files[n++] = fd;
	}
	control.header.cmsg_len = CMSG_LEN(n * sizeof(int));
	message.msg_controllen = CMSG_SPACE(n * sizeof(int));
	ck_assert_int_eq(sendmsg(FD_OUTSIDE, &message, 0), 1);
}

static void *leave(void *arg)
{
	int signal;

	sigwait(arg, &signal);
	exit(0);
}

/* Role: f: its socket ends first, m: its thread with the mutex does, h: it leaves a holder, o: it hands
 * its files on, s: neither. */
START_TEST(be_the_owner)
{
	static sigset_t usr1;
	pthread_t thread;
	uint8_t *memory =
		mmap(NULL, PAGE + END_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, FD_MEMORY, 0);
	char role = victim_role()[0];
	uint64_t len, grant, peer;
	pid_t pid = getpid();
	uint8_t buf[4096];
	struct end e;

	ck_assert_ptr_ne(memory, MAP_FAILED);
	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &usr1, NULL);
	ck_assert_int_eq(pthread_create(&thread, NULL, leave, &usr1), 0);
	end_open_on(&e, memory + PAGE, patient);
	announce(&e);
	if (role == 'h')
		leave_a_holder();
	if (role == 'o')
		hand_on_files();
	put(VICTIM_OUT, &pid, sizeof(pid));
	len = end_invite(&e, "survivor", buf, sizeof(buf));
	put(VICTIM_OUT, buf, len);
	peer = end_wait(&e, ESCROW_EV_PEER_UP).object;
	len = end_grant(&e, peer, 0, END_BYTES, ESCROW_MAY_WRITE, buf, sizeof(buf), &grant);
	if (role == 'm')
		pthread_mutex_lock(&((struct shared *)(void *)memory)->mutex);
	put(VICTIM_OUT, buf, len);
	get(VICTIM_IN, buf, sizeof(buf));
	if (role == 'f')
		close(VICTIM_OUT);
	if (role == 'm')
		syscall(SYS_exit, 0); /* this thread; those of the engine go on */
	get(VICTIM_IN, buf, sizeof(buf));
}
END_TEST

/* ---- The survivor, and the peer ------------------------------------------------------------------------ */
static struct {
	struct end peer;
	uint8_t *memory; /* what is shared: lent from PAGE on */
	int fd, go, outside;
	uint64_t remote;
	uint32_t registrations; /* before there was an owner */
	pid_t owner;
	struct victim v;
} s;

static void set_up(void)
{
	pthread_mutexattr_t robust;

	memset(&s, 0, sizeof(s));
	s.go = s.outside = -1;
	s.fd = memfd_create("shared", 0);
	ck_assert_int_eq(ftruncate(s.fd, PAGE + END_BYTES), 0);
	s.memory = mmap(NULL, PAGE + END_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, s.fd, 0);
	ck_assert_ptr_ne(s.memory, MAP_FAILED);
	pthread_mutexattr_init(&robust);
	pthread_mutexattr_setpshared(&robust, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&robust, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(&((struct shared *)(void *)s.memory)->mutex, &robust);
	end_open(&s.peer, 'L', patient); /* late */
	s.registrations = registrations();
}

/* The peer writes 'L' over all that it was lent. */
static escrow_status peer_writes(void)
{
	uint64_t op = end_try_submit(&s.peer, s.remote, ESCROW_WRITE, END_BYTES);

	return op ? end_wait_of(&s.peer, ESCROW_EV_OP_DONE, op).status : ESCROW_E_PEER_LOST;
}

static void survivor_uses_the_memory(void)
{
	memset(s.memory + PAGE, 's', END_BYTES);
}

static void memory_is(uint8_t byte)
{
	for (uint32_t i = 0; i < END_BYTES; i++)
		testing_assert_byte(s.memory[PAGE + i], byte, i);
}

/* An owner in this role, with the keys in the peer's hands, and used once. */
static void owner_lends(const char *role, const char *const *before)
{
	int go[2], outside[2], more[4] = {s.fd, -1, -1, -1};
	uint64_t len, peer;
	uint8_t buf[4096];

	ck_assert_int_eq(pipe2(go, O_CLOEXEC), 0);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, outside), 0);
	more[1] = go[0];
	more[2] = outside[0];
	s.v = victim_start(role, before, more);
	close(go[0]);
	close(outside[0]);
	s.go = go[1];
	s.outside = outside[1];
	hang_watch(HANG_S, s.v.pid);
	ck_assert_uint_eq(get(s.v.from, &s.owner, sizeof(s.owner)), sizeof(s.owner));
	len = get(s.v.from, buf, sizeof(buf));
	peer = end_connect(&s.peer, "owner", buf, len);
	end_wait_of(&s.peer, ESCROW_EV_PEER_UP, peer);
	len = get(s.v.from, buf, sizeof(buf));
	s.remote = end_import(&s.peer, peer, buf, len);
	ck_assert_int_eq(peer_writes(), ESCROW_OK);
	memory_is('L');
}

/* It used the memory too early: what the peer writes lands in it. */
static void a_byte_comes_late(void)
{
	survivor_uses_the_memory();
	ck_assert_int_eq(peer_writes(), ESCROW_OK);
	memory_is('L');
}

static void no_byte_comes_late(void)
{
	survivor_uses_the_memory();
	ck_assert_int_lt(peer_writes(), 0);
	memory_is('s');
}

static void tear_down(void)
{
	victim_close(&s.v);
	close(s.go);
	close(s.outside);
	end_close(&s.peer);
	munmap(s.memory, PAGE + END_BYTES);
	close(s.fd);
	hang_watch(0, 0);
}

/* R22: the end of its socket is seen while the keys work. */
START_TEST(fin_is_no_fence)
{
	uint8_t byte;

	set_up();
	owner_lends("f", NULL);
	put(s.v.to, "d", 1);
	ck_assert_uint_eq(get(s.v.from, &byte, 1), 0);
	a_byte_comes_late();
	kill(s.v.pid, SIGKILL);
	victim_reap(&s.v, 0);
	no_byte_comes_late();
	tear_down();
}
END_TEST

/* R22: so is OWNER_DIED, which comes when a thread ends. */
START_TEST(owner_died_is_no_fence)
{
	set_up();
	owner_lends("m", NULL);
	put(s.v.to, "d", 1);
	ck_assert_int_eq(pthread_mutex_lock(&((struct shared *)(void *)s.memory)->mutex),
			 EOWNERDEAD);
	a_byte_comes_late();
	kill(s.v.pid, SIGKILL);
	victim_reap(&s.v, 0);
	no_byte_comes_late();
	tear_down();
}
END_TEST

/* R23: so is the end of the process, if it left a child with its files. Not on softverbs, whose device ends
 * with the process. */
START_TEST(a_reaped_process_is_no_fence)
{
	set_up();
	owner_lends("h", NULL);
	kill(s.v.pid, SIGKILL);
	victim_reap(&s.v, 0);
	a_byte_comes_late();
	tear_down();
}
END_TEST

/* ---- Below escrow supervise -------------------------------------------------------------------------------- */
static struct {
	char dir[32], file[64], socket[64];
	FILE *said; /* its standard error */
	FILE *told; /* its socket */
} sup;

static const char *supervisor(void)
{
	static char path[4096];
	const char *build = getenv("top_builddir");

	snprintf(path, sizeof(path), "%s/tools/escrow", build ? build : ".");
	return path;
}

/* The owner below a supervisor, which the survivor listens to. */
static void supervised(const char *role)
{
	const char *before[9] = {supervisor(), "supervise", "-f", sup.file, "-s", sup.socket, "--"};
	int said[2], err;

	set_up();
	snprintf(sup.dir, sizeof(sup.dir), "/tmp/test-death-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(sup.dir));
	snprintf(sup.file, sizeof(sup.file), "%s/fenced", sup.dir);
	snprintf(sup.socket, sizeof(sup.socket), "%s/socket", sup.dir);
	ck_assert_int_eq(pipe2(said, O_CLOEXEC), 0);
	err = dup(2);
	dup2(said[1], 2);
	owner_lends(role, before);
	dup2(err, 2);
	close(err);
	close(said[1]);
	sup.said = fdopen(said[0], "r");
	sup.told = fdopen(dial(sup.socket), "r");
}

/* Reads on until the supervisor says this. */
static void supervisor_says(const char *text)
{
	char line[512];

	do
		ck_assert_msg(fgets(line, sizeof(line), sup.said) != NULL, "not said: %s", text);
	while (!strstr(line, text));
}

static void not_fenced(void)
{
	FILE *f = fopen(sup.file, "r");
	int first = fgetc(f);

	fclose(f);
	ck_assert_int_eq(first, EOF);
}

static void fenced(void)
{
	char line[64] = "", filed[64] = "";
	FILE *f;

	ck_assert_ptr_nonnull(fgets(line, sizeof(line), sup.told));
	ck_assert_mem_eq(line, "fenced ", 7);
	f = fopen(sup.file, "r");
	ck_assert_ptr_nonnull(fgets(filed, sizeof(filed), f));
	fclose(f);
	ck_assert_str_eq(line, filed);
	no_byte_comes_late();
	end_until_unused(&s.peer, ESCROW_CHARGE_CONNECTIONS);
	ck_assert_uint_eq(registrations(), s.registrations);
	fclose(sup.told);
	victim_reap(&s.v, 0);
	fclose(sup.said);
	unlink(sup.file);
	rmdir(sup.dir);
	tear_down();
}

static const int deaths[] = {SIGKILL, SIGSEGV, SIGUSR1 /* exit without close */};

/* R22, and L: the peer writes as long as it can; after the fence nothing of it lands. */
START_TEST(after_the_fence_no_byte_is_late)
{
	supervised("s");
	a_byte_comes_late(); /* it lives */
	kill(s.owner, deaths[_i]);
	fenced();
}
END_TEST

/* R23: a forked child keeps the fence away, and on a kernel the keys alive. */
START_TEST(a_forked_holder_keeps_the_fence_away)
{
	supervised("h");
	kill(s.owner, deaths[_i]);
	supervisor_says("the fence waits for");
	if (!ends_double()) {
		a_byte_comes_late();
		ck_assert_uint_gt(registrations(), s.registrations); /* and its pages pinned */
	}
	not_fenced();
	close(s.go);
	s.go = -1;
	fenced();
}
END_TEST

static uint32_t take_files(int files[FILES_MAX])
{
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(FILES_MAX * sizeof(int))];
	} control;
	char byte;
	struct iovec iov = {.iov_base = &byte, .iov_len = 1};
	struct msghdr message = {.msg_iov = &iov,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = sizeof(control)};
	uint32_t n;

	ck_assert_int_eq(recvmsg(s.outside, &message, MSG_CMSG_CLOEXEC), 1);
	ck_assert_uint_gt(message.msg_controllen, CMSG_LEN(0));
	n = (uint32_t)((control.header.cmsg_len - CMSG_LEN(0)) / sizeof(int));
	memcpy(files, CMSG_DATA(&control.header), n * sizeof(int));
	return n;
}

/* R23: so does a process that the supervisor did not start and cannot reap. Kernel only. */
START_TEST(a_file_that_was_handed_on_keeps_the_fence_away)
{
	int files[FILES_MAX];
	uint32_t n;

	supervised("o");
	n = take_files(files);
	kill(s.owner, SIGKILL);
	supervisor_says("are held by others");
	a_byte_comes_late();
	not_fenced();
	while (n > 0)
		close(files[--n]);
	fenced();
}
END_TEST

static void add_cases(Suite *suite)
{
	TCase *t = tcase_create("death");

	tcase_set_timeout(t, 300);
	suite_add_tcase(suite, t);
	tcase_add_test(t, fin_is_no_fence);
	tcase_add_test(t, owner_died_is_no_fence);
	if (!ends_double())
		tcase_add_test(t, a_reaped_process_is_no_fence);
	if (access(supervisor(), X_OK)) {
		printf("# no %s: what needs a supervisor is left out\n", supervisor());
		return;
	}
	tcase_add_loop_test(t, after_the_fence_no_byte_is_late, 0, 3);
	tcase_add_loop_test(t, a_forked_holder_keeps_the_fence_away, 0, 3);
	if (!ends_double())
		tcase_add_test(t, a_file_that_was_handed_on_keeps_the_fence_away);
}

int main(void)
{
	Suite *suite;
	TCase *t;
	char why[256];

	signal(SIGPIPE, SIG_IGN);
	if (!ends_possible(why, sizeof(why)))
		return testing_skip(why);
	if (!victim_possible())
		return testing_skip("no /proc/self/exe");
	suite = suite_create("rdma-death");
	if (victim_role()) {
		t = tcase_create("owner");
		tcase_add_test(t, be_the_owner);
		suite_add_tcase(suite, t);
	} else {
		add_cases(suite);
	}
	return testing_run(suite);
}
