/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A host that a stranger could have built: of ours it knows <escrow/backend.h> alone, found by pkg-config. One engine connects
 * to itself and writes; one native teardown call is made to fail by the observer, which is loaded ahead of
 * libibverbs; then it looks at what the contract promises, and at what the observer saw. Prints TAP lines without numbers.
 *
 *   installed-host BACKEND.so DEVICE FAILURE strong|weak
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <escrow/backend.h>

#include "observer.h"

#define PARENTS 8
#define PARENT (UINT64_C(5) << 20)
#define BYTES (PARENTS * PARENT)
#define PAGE 4096u

static const struct escrow_ops *ops;
static struct escrow_engine *engine;
static const char *label;
static int bad;

static void check(int right, const char *what)
{
	printf("%s - %s: %s\n", right ? "ok" : "not ok", label, what);
	bad |= !right;
}

static void fail(const char *what, long long status)
{
	printf("not ok - %s: %s: %lld\n", label, what, status);
	exit(1);
}

static void must(int64_t status, const char *what)
{
	if (status < 0)
		fail(what, status);
}

/* ---- What a host lends -------------------------------------------------------------------------- */
static int32_t log_enabled(void *ctx, int32_t level)
{
	return (void)ctx, (void)level, 0;
}

static void log_text(void *ctx, int32_t level, const char *who, const char *text, uint64_t len)
{
	(void)ctx, (void)level, (void)who, (void)text, (void)len;
}

static void *take(void *ctx, uint64_t bytes, uint64_t align)
{
	return (void)ctx, aligned_alloc(align, (bytes + align - 1) / align * align);
}

static void give_back(void *ctx, void *p)
{
	(void)ctx, free(p);
}

static uint64_t now_ns(void *ctx)
{
	struct timespec t = {0, 0};

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (void)ctx, (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static const void *no_extension(void *ctx, const char *id)
{
	return (void)ctx, (void)id, NULL;
}

static const struct escrow_host host = {sizeof(host), 0,      NULL,        log_enabled,
					log_text,     take,   give_back,   take,
					give_back,    now_ns, no_extension};

/* ---- Events --------------------------------------------------------------------------------------- */
static struct {
	unsigned int kind[32], repeats, held, done, released_regions, stuck_regions;
	uint64_t peers[2];
} seen;

static void turn(void)
{
	struct escrow_event e;

	if (ops->poll(engine, &e, 1, sizeof(e), 0) != 1)
		return;
	if (e.kind == ESCROW_EV_PEER_UP)
		seen.peers[seen.kind[ESCROW_EV_PEER_UP] % 2] = e.object;
	seen.released_regions += e.kind == ESCROW_EV_REGION_RELEASED;
	if (e.kind == ESCROW_EV_OP_DONE) {
		seen.done += e.status == ESCROW_OK;
		seen.held += e.custody == ESCROW_CUSTODY_HELD;
	}
	if (e.kind == ESCROW_EV_QUARANTINED && e.object) {
		seen.stuck_regions++;
		return;
	}
	seen.repeats += e.kind == ESCROW_EV_QUARANTINED && (e.flags & ESCROW_EVF_REPEAT);
	seen.kind[e.kind % 32]++;
}

static void wait_for(uint16_t kind, unsigned int n)
{
	while (seen.kind[kind] < n)
		turn();
}

/* ---- The engine and its load -------------------------------------------------------------------------- */
static uint64_t from_region, to_region, idle_region, remote;
static uint8_t *from, *to, *idle;

/* What is not owed is not waited for, but may be slow to come: without its receipt more would stay. */
static void load(const char *path, int owes, int weak)
{
	struct escrow_hello hello = {sizeof(hello), 1, 1, 0, &host, "installed-host", "1"};
	struct escrow_error error = {sizeof(error), 0, 0, 0, ""};
	struct escrow_kv kv[] = {{"max_rails", "1"},
				 {"num_lanes", "1"},
				 {"drain_ms", owes ? "300" : "60000"},
				 {"weak.reset", "1"}};
	struct escrow_open_args args = {sizeof(args),  0,     &host, 1, 0, kv, weak ? 4 : 3,
					sizeof(kv[0]), "host"};
	void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	const struct escrow_backend *backend;
	escrow_entry_fn entry;

	*(void **)&entry = object ? dlsym(object, ESCROW_ENTRY) : NULL; /* as in dlsym(3) */
	if (!entry) {
		printf("not ok - %s: %s\n", label, dlerror());
		exit(1);
	}
	backend = entry(&hello, &error);
	if (!backend || backend->ops->open(&args, &engine, &error) != ESCROW_OK) {
		printf("not ok - %s: %s\n", label, error.text);
		exit(1);
	}
	ops = backend->ops;
}

static uint64_t lend(uint8_t **bytes, uint64_t length)
{
	struct escrow_region_args args = {sizeof(args),       0, 0,  NULL, length,
					  ESCROW_MEMORY_HOST, 0, -1, 0};
	uint64_t region = 0;

	args.addr = *bytes = aligned_alloc(PAGE, length);
	if (!*bytes)
		fail("no memory", (long long)length);
	memset(*bytes, 0, length);
	must(ops->register_memory(engine, &args, &region, NULL), "register_memory");
	return region;
}

static void connect_to_itself(void)
{
	struct escrow_invite_args invite = {sizeof(invite), ESCROW_INVITE_ANY, 0, NULL, 0};
	struct escrow_peer_args who = {.size = sizeof(who), .peer_name = "myself"};
	struct escrow_grant_args grant = {.size = sizeof(grant), .rights = ESCROW_MAY_WRITE};
	char bytes[8192];
	uint64_t len = sizeof(bytes), peer, handle;

	must(ops->invite(engine, &invite, bytes, &len), "invite");
	who.invitation = bytes;
	who.invitation_len = len;
	must(ops->connect(engine, &who, &peer, NULL), "connect");
	wait_for(ESCROW_EV_PEER_UP, 2);
	grant.peer = seen.peers[seen.peers[0] == peer];
	grant.region = to_region;
	grant.length = BYTES;
	must(ops->grant(engine, &grant, &handle, NULL), "grant");
	wait_for(ESCROW_EV_GRANT_READY, 1);
	len = sizeof(bytes);
	must(ops->export_grant(engine, handle, bytes, &len), "export_grant");
	must(ops->import_grant(engine, peer, bytes, len, 0, &remote, NULL), "import_grant");
}

static void submit(void)
{
	for (uint64_t i = 0; i < PARENTS; i++) {
		struct escrow_sge sge = {from_region, i * PARENT, PARENT};
		struct escrow_op op = {.remote = remote,
				       .remote_offset = i * PARENT,
				       .opcode = ESCROW_WRITE,
				       .nsge = 1,
				       .sge = &sge};
		uint64_t id;
		int32_t n;

		memset(from + i * PARENT, (int)i + 1, PARENT);
		while ((n = ops->transfer(engine, &op, 1, sizeof(op), 0, &id)) == ESCROW_E_AGAIN)
			turn();
		must(n, "transfer");
	}
}

/* ---- What fails, and what follows ------------------------------------------------------------------------ */
static const struct failure {
	const char *name;
	enum observer_failure failure;
	uint32_t kind, owner, step;
	int sys_errno, owes;
} failures[] = {
	{"destroy_qp", OBSERVER_DESTROY_QP, OBSERVER_QP, ESCROW_OWNER_CONNECTION,
	 ESCROW_STEP_DESTROY_QP, EIO, 1},
	{"destroy_channel", OBSERVER_DESTROY_CHANNEL, OBSERVER_CHANNEL, ESCROW_OWNER_LANE,
	 ESCROW_STEP_DESTROY_CHANNEL, EBUSY, 0},
	{"destroy_cq", OBSERVER_DESTROY_CQ, OBSERVER_CQ, ESCROW_OWNER_LANE, ESCROW_STEP_DESTROY_CQ,
	 EBUSY, 0},
	{"dealloc_pd", OBSERVER_DEALLOC_PD, OBSERVER_PD, ESCROW_OWNER_CONTEXT,
	 ESCROW_STEP_DEALLOC_PD, EBUSY, 0},
	{"dereg_mr", OBSERVER_DEREG_MR, OBSERVER_MR, ESCROW_OWNER_REGION, ESCROW_STEP_DEREGISTER,
	 EIO, 0},
	{"dealloc_mw", OBSERVER_DEALLOC_MW, OBSERVER_MW, ESCROW_OWNER_WINDOW,
	 ESCROW_STEP_DEALLOC_WINDOW, EIO, 0},
};

static const struct failure *failure_named(const char *name)
{
	for (size_t i = 0; i < sizeof(failures) / sizeof(failures[0]); i++)
		if (strcmp(failures[i].name, name) == 0)
			return &failures[i];
	fail("no such failure", 0);
	return NULL;
}

static void plan(const struct failure *f, const char *device)
{
	struct observer_plan p = {.failure = f->failure, .withhold = OBSERVER_WRITE, .skip = 3};

	snprintf(p.fail_on, sizeof(p.fail_on), "%s", device);
	if (f->owes)
		snprintf(p.withhold_on, sizeof(p.withhold_on), "%s", device);
	if (f->failure == OBSERVER_DEREG_MR)
		p.addr = idle;
	observer_plan(&p);
}

static struct observer_state state(void)
{
	struct observer_state s;

	observer_state(&s);
	return s;
}

/* Until all are done, or nothing more comes of what the device still had. */
static void run(const struct failure *f)
{
	submit();
	if (!f->owes) {
		wait_for(ESCROW_EV_OP_DONE, PARENTS);
		check(seen.done == PARENTS && memcmp(from, to, BYTES) == 0, "every byte arrived");
		return;
	}
	while (!state().withheld || state().outstanding)
		turn();
	for (int i = 0; i < 1000; i++)
		turn();
	check(seen.done < PARENTS, "parents are not done, for their completions were kept back");
}

static void close_engine(void)
{
	uint64_t calls;

	must(ops->close(engine, 0, ESCROW_CLOSE_ABORT), "close");
	while (!seen.kind[ESCROW_EV_QUARANTINED] && !seen.kind[ESCROW_EV_CLOSED])
		turn();
	check(!seen.kind[ESCROW_EV_CLOSED], "the engine is not called closed");
	calls = state().calls;
	must(ops->close(engine, 0, ESCROW_CLOSE_ABORT), "another close");
	while (!seen.repeats)
		turn();
	check(state().calls == calls, "another close gives the same answer without a native call");
}

static void refusals(void)
{
	struct escrow_region_args region = {sizeof(region),     0, 0,  idle, PAGE,
					    ESCROW_MEMORY_HOST, 0, -1, 0};
	struct escrow_sge sge = {from_region, 0, PAGE};
	struct escrow_op op = {.remote = remote, .opcode = ESCROW_WRITE, .nsge = 1, .sge = &sge};
	uint64_t handle;

	check(ops->resume(engine, 0) == ESCROW_E_STATE, "recovery is refused");
	check(ops->register_memory(engine, &region, &handle, NULL) == ESCROW_E_STATE,
	      "registration is refused");
	check(ops->transfer(engine, &op, 1, sizeof(op), 0, &handle) == ESCROW_E_STATE,
	      "transfer is refused");
}

/* The owner of what failed outlives the engine, with the call and its errno. */
static void residue(const struct failure *f)
{
	struct escrow_record records[32];
	uint64_t cursor = 0;
	int32_t n, found = 0;

	while ((n = ops->records(NULL, &cursor, records, 32, sizeof(records[0]))) > 0)
		for (int32_t i = 0; i < n; i++)
			found += records[i].kind == f->owner &&
				 records[i].state == ESCROW_OWNER_QUARANTINED &&
				 records[i].stage == f->step &&
				 records[i].sys_errno == f->sys_errno;
	check(found == 1, "its owner outlives the engine, with the call and its errno");
}

static void natives(const struct failure *f)
{
	static struct observer_object all[512];
	size_t n = observer_objects(all, 512);
	uint32_t failed = 0, twice = 0, touched = 0, number = 0;
	struct observer_proof proof;

	for (size_t i = 0; i < n; i++) {
		twice += all[i].ends > 1;
		touched += all[i].touched;
		if (all[i].kind == f->kind && all[i].ends && all[i].rc == f->sys_errno) {
			failed++;
			number = all[i].number;
		}
	}
	check(failed == 1, "one call failed, by its real cause");
	check(!twice, "no destroy was called twice");
	check(!touched, "nothing was used after its destroy");
	check(observer_prove(&proof) == 0 && proof.number == number && !proof.use && !proof.end,
	      "the object was there all the time, under its handle");
}

int main(int argc, char **argv)
{
	static char name[64];
	const struct failure *f;
	int weak;

	if (argc != 5) {
		fprintf(stderr, "usage: installed-host BACKEND.so DEVICE FAILURE strong|weak\n");
		return 2;
	}
	snprintf(name, sizeof(name), "%s/%s", argv[3], argv[4]);
	label = name;
	weak = strcmp(argv[4], "weak") == 0;
	f = failure_named(argv[3]);
	load(argv[1], f->owes, weak);
	from_region = lend(&from, BYTES);
	to_region = lend(&to, BYTES);
	idle_region = lend(&idle, PAGE);
	plan(f, argv[2]);
	connect_to_itself();
	run(f);
	close_engine();
	refusals();
	check((seen.held > 0) == (weak && f->owes),
	      weak && f->owes ? "what has no proof stays lent"
			      : "nothing stays lent without a reason");
	check(seen.stuck_regions ==
		      (unsigned int)((weak && f->owes) || f->failure == OBSERVER_DEREG_MR),
	      "memory stays where it must, and only there");
	check(seen.released_regions + seen.stuck_regions == 3, "each region ends once");
	ops->release(engine);
	residue(f);
	natives(f);
	return bad;
}
