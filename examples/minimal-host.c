/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The smallest host: <escrow/backend.h> and dlopen, nothing else.  One engine connects to itself,
 * grants a range, writes through the grant, and frees its memory only when the backend has proof
 * that the device let go of it.
 *
 *   cc -o minimal-host minimal-host.c $(pkg-config --cflags escrow) -ldl
 *   ./minimal-host "$(pkg-config --variable=backenddir escrow)/mock.so"
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <escrow/backend.h>

static const struct escrow_ops *ops;
static struct escrow_engine *engine;

/* ---- What a host lends: a log, memory, a clock ---------------------------------------------- */
static int32_t log_enabled(void *ctx, int32_t level)
{
	return (void)ctx, level <= ESCROW_LOG_WARNING || level >= ESCROW_LOG_HOST_MISBEHAVES;
}

static void log_text(void *ctx, int32_t level, const char *who, const char *text, uint64_t len)
{
	if (log_enabled(ctx, level))
		fprintf(stderr, "%s: %.*s\n", who, (int)len, text);
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

static void check(int64_t status, const char *what)
{
	if (status >= 0)
		return;
	fprintf(stderr, "%s: status %lld\n", what, (long long)status);
	exit(1);
}

/* Polls until an event of this kind comes; anything that failed on the way ends the program. */
static struct escrow_event wait_for(uint16_t kind)
{
	struct escrow_event e;

	for (;;) {
		if (ops->poll(engine, &e, 1, sizeof(e), 0) != 1)
			continue;
		check(e.status, "event");
		if (e.kind == kind)
			return e;
	}
}

static void load(const char *path)
{
	struct escrow_hello hello = {sizeof(hello), 1, 1, 0, &host, "minimal-host", "1"};
	struct escrow_error error = {sizeof(error), 0, 0, 0, ""};
	struct escrow_open_args args = {sizeof(args), 0, &host, 1, 0, NULL, 0, 0, "minimal"};
	void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	const struct escrow_backend *backend = NULL;
	escrow_entry_fn entry;

	*(void **)&entry = object ? dlsym(object, ESCROW_ENTRY) : NULL; /* as in dlsym(3) */
	if (entry)
		backend = entry(&hello, &error);
	if (!backend || backend->ops->open(&args, &engine, &error) != ESCROW_OK) {
		fprintf(stderr, "%s\n", entry ? error.text : dlerror());
		exit(1);
	}
	ops = backend->ops;
}

int main(int argc, char **argv)
{
	static char memory[2][4096] = {"in escrow"};
	struct escrow_region_args region = {sizeof(region),     0, 0,  memory, sizeof(memory),
					    ESCROW_MEMORY_HOST, 0, -1, 0};
	struct escrow_invite_args invite = {sizeof(invite), ESCROW_INVITE_ANY, 0, NULL, 0};
	struct escrow_peer_args who = {.size = sizeof(who), .peer_name = "myself"};
	struct escrow_grant_args grant = {.size = sizeof(grant), .rights = ESCROW_MAY_WRITE};
	struct escrow_sge sge = {0, 0, sizeof(memory[0])};
	struct escrow_op op = {.opcode = ESCROW_WRITE, .nsge = 1, .sge = &sge};
	uint64_t len, peer, handle, id;
	char bytes[4096];

	load(argc == 2 ? argv[1] : "mock.so");
	check(ops->register_memory(engine, &region, &sge.region, NULL), "register_memory");
	grant.region = sge.region;
	grant.offset = grant.length = sizeof(memory[1]);

	/* A peer comes by invitation; the bytes would travel over the host's own channel. */
	len = sizeof(bytes);
	check(ops->invite(engine, &invite, bytes, &len), "invite");
	who.invitation = bytes;
	who.invitation_len = len;
	check(ops->connect(engine, &who, &peer, NULL), "connect");
	/* Connecting to oneself makes two ends: the other one is the sum of both less ours. */
	grant.peer = wait_for(ESCROW_EV_PEER_UP).object + wait_for(ESCROW_EV_PEER_UP).object - peer;

	/* The passive end lends authority; the active end imports it and writes through it. */
	check(ops->grant(engine, &grant, &handle, NULL), "grant");
	wait_for(ESCROW_EV_GRANT_READY);
	len = sizeof(bytes);
	check(ops->export_grant(engine, handle, bytes, &len), "export_grant");
	check(ops->import_grant(engine, peer, bytes, len, 0, &op.remote, NULL), "import_grant");
	check(ops->transfer(engine, &op, 1, sizeof(op), 0, &id), "transfer");
	if (wait_for(ESCROW_EV_OP_DONE).custody == ESCROW_CUSTODY_RETURNED)
		printf("%s\n", memory[1]);

	/* Closed means: proved.  Only now may the bytes be used for something else. */
	check(ops->close(engine, 0, ESCROW_CLOSE_GRACEFUL), "close");
	wait_for(ESCROW_EV_CLOSED);
	ops->release(engine);
	return memcmp(memory[0], memory[1], sizeof(memory[0])) != 0;
}
