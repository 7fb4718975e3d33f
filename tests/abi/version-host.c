/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A host for the version matrix: version-host BACKEND.so. It is compiled against the headers of one
 * revision, the backend against those of another, and what the two have in common must work: the
 * table in its revision 1 part, structs longer than the other side knows, and the refusals. Prints
 * what was wrong, and returns 1; 0 if nothing was.
 */
#include <escrow/backend.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CANARY 0xa5
#define SIZE_1(type, last) (offsetof(struct type, last) + sizeof(((struct type *)0)->last))

static int wrong;

#define EXPECT(got, want) expect(__LINE__, #got, (got), (want))

static void expect(int line, const char *what, long long got, long long want)
{
	if (got == want)
		return;
	printf("line %d: %s is %lld, not %lld\n", line, what, got, want);
	wrong = 1;
}

static int32_t host_log_enabled(void *ctx, int32_t level)
{
	(void)ctx, (void)level;
	return 0;
}

static void host_log(void *ctx, int32_t level, const char *component, const char *text,
		     uint64_t len)
{
	(void)ctx, (void)level, (void)component, (void)text, (void)len;
}

static void *host_alloc(void *ctx, uint64_t bytes, uint64_t align)
{
	(void)ctx;
	return aligned_alloc(align, (bytes + align - 1) / align * align);
}

static void host_free(void *ctx, void *p)
{
	(void)ctx;
	free(p);
}

static uint64_t host_now(void *ctx)
{
	(void)ctx;
	return 1;
}

static const void *host_extension(void *ctx, const char *id)
{
	(void)ctx, (void)id;
	return NULL;
}

static const struct escrow_host host = {
	.size = sizeof(host),
	.log_enabled = host_log_enabled,
	.log = host_log,
	.alloc = host_alloc,
	.free = host_free,
	.dma_alloc = host_alloc,
	.dma_free = host_free,
	.now_ns = host_now,
	.get_extension = host_extension,
};

/* A struct with a tail that no revision knows, as a host of a far revision would pass it. */
struct long_args {
	struct escrow_open_args args;
	uint64_t tail[4];
};

static const struct escrow_backend *negotiate(escrow_entry_fn entry, uint32_t low, uint32_t high,
					      struct escrow_error *error)
{
	struct escrow_hello hello = {
		.size = sizeof(hello),
		.rev_min = low,
		.rev_max = high,
		.host = &host,
		.host_name = "version-host",
		.host_version = "1",
	};

	memset(error, 0, sizeof(*error));
	error->size = sizeof(*error);
	/* cppcheck-suppress returnDanglingLifetime ; the descriptor is the backend's */
	return entry(&hello, error);
}

/* The range decides: below, above, inverted, and one that reaches far beyond today. */
static const struct escrow_backend *check_range(escrow_entry_fn entry)
{
	const struct escrow_backend *backend;
	struct escrow_error error;

	EXPECT(negotiate(entry, 1000, 2000, &error) == NULL, 1);
	EXPECT(error.status, ESCROW_E_REVISION);
	EXPECT(error.text[0] != 0, 1);
	EXPECT(negotiate(entry, 0, 0, &error) == NULL, 1);
	EXPECT(error.status, ESCROW_E_REVISION);
	EXPECT(negotiate(entry, 2, 1, &error) == NULL, 1);
	EXPECT(error.status, ESCROW_E_INVALID);
	backend = negotiate(entry, 1, 1000, &error);
	if (!backend) {
		printf("refused: %s\n", error.text);
		wrong = 1;
		return NULL;
	}
	EXPECT(backend->revision >= 1 && backend->revision <= 1000, 1);
	EXPECT(negotiate(entry, 1, 1, &error) != NULL, 1);
	/* cppcheck-suppress returnDanglingLifetime ; likewise */
	return negotiate(entry, 1, ESCROW_REVISION, &error);
}

static int next_event(const struct escrow_ops *ops, struct escrow_engine *engine)
{
	/* A stride beyond our struct: the only way in which events may ever grow. */
	struct {
		struct escrow_event event;
		uint64_t beyond[2];
	} got = {.beyond = {CANARY, CANARY}};

	for (int i = 0; i < 1000000; i++) {
		int32_t n = ops->poll(engine, &got.event, 1, sizeof(got), 0);

		if (n == 0)
			continue;
		EXPECT(n, 1);
		EXPECT(got.beyond[0], CANARY);
		EXPECT(got.event.status, ESCROW_OK);
		return got.event.kind;
	}
	return 0;
}

static void close_engine(const struct escrow_ops *ops, struct escrow_engine *engine)
{
	EXPECT(ops->close(engine, 0, ESCROW_CLOSE_GRACEFUL), ESCROW_IN_PROGRESS);
	EXPECT(next_event(ops, engine), ESCROW_EV_CLOSED);
	ops->release(engine);
}

static void check_open(const struct escrow_ops *ops, uint32_t revision,
		       struct escrow_engine **engine)
{
	struct long_args given;
	struct escrow_error error = {.size = sizeof(error)};

	memset(&given, 0, sizeof(given));
	given.args.host = &host;
	given.args.revision = revision;
	given.args.engine_name = "version-host";

	given.args.size = SIZE_1(escrow_open_args, engine_name) - 8;
	EXPECT(ops->open(&given.args, engine, &error), ESCROW_E_INVALID);
	given.args.size = sizeof(given);
	given.tail[3] = 1;
	EXPECT(ops->open(&given.args, engine, &error), ESCROW_E_UNSUPPORTED);
	given.tail[3] = 0;
#ifdef ESCROW_FUTURE_FLAG
	given.args.future_value = 1;
	EXPECT(ops->open(&given.args, engine, &error), ESCROW_E_UNSUPPORTED);
	given.args.future_value = 0;
#endif
	given.args.flags = 0x80000000u;
	EXPECT(ops->open(&given.args, engine, &error), ESCROW_E_UNSUPPORTED);
	given.args.flags = 0;
	EXPECT(*engine == NULL, 1);
	EXPECT(ops->open(&given.args, engine, &error), ESCROW_OK);
	if (*engine)
		close_engine(ops, *engine);
	*engine = NULL;
	given.args.size = sizeof(given.args);
	EXPECT(ops->open(&given.args, engine, &error), ESCROW_OK);
	if (!*engine)
		printf("open: %s\n", error.text);
}

/* A writer fills what it knows and never goes beyond our size. */
static void check_query(const struct escrow_ops *ops, struct escrow_engine *engine)
{
	struct {
		struct escrow_limits limits;
		uint8_t beyond[64];
	} out;
	size_t size_1 = SIZE_1(escrow_limits, incarnation);
	uint8_t *bytes;

	memset(&out, CANARY, sizeof(out));
	bytes = (uint8_t *)&out;
	out.limits.size = (uint32_t)size_1;
	EXPECT(ops->query(engine, &out.limits), ESCROW_OK);
	EXPECT(out.limits.state, ESCROW_STATE_OPEN);
	EXPECT(out.limits.max_regions > 0, 1);
	for (size_t i = size_1; i < sizeof(out); i++)
		EXPECT(bytes[i], CANARY);
	memset(&out, 0, sizeof(out));
	out.limits.size = sizeof(out);
	EXPECT(ops->query(engine, &out.limits), ESCROW_OK);
	out.limits.size = (uint32_t)size_1 - 8;
	EXPECT(ops->query(engine, &out.limits), ESCROW_E_INVALID);
}

static void check_life(const struct escrow_ops *ops, struct escrow_engine *engine)
{
	static uint8_t memory[4096];
	struct escrow_region_args args = {
		.size = sizeof(args),
		.addr = memory,
		.length = sizeof(memory),
		.memory_kind = ESCROW_MEMORY_HOST,
		.dmabuf_fd = -1,
	};
	struct escrow_error error = {.size = sizeof(error)};
	uint64_t region = 0;

	EXPECT(ops->register_memory(engine, &args, &region, &error), ESCROW_OK);
	EXPECT(ops->transfer(engine, NULL, 0, sizeof(struct escrow_op), 0, NULL), 0);
	EXPECT(ops->transfer(engine, NULL, 0, sizeof(struct escrow_op), 0x80000000u, NULL),
	       ESCROW_E_UNSUPPORTED);
	EXPECT(ops->deregister_memory(engine, region, 0), ESCROW_IN_PROGRESS);
	EXPECT(next_event(ops, engine), ESCROW_EV_REGION_RELEASED);
	close_engine(ops, engine);
}

int main(int argc, char **argv)
{
	void *object = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
	const struct escrow_backend *backend;
	struct escrow_engine *engine = NULL;
	struct escrow_ops ops;
	escrow_entry_fn entry;

	if (!object) {
		printf("%s\n", argc == 2 ? dlerror() : "usage: version-host BACKEND.so");
		return 2;
	}
	*(void **)&entry = dlsym(object, ESCROW_ENTRY);
	if (!entry) {
		printf("no %s\n", ESCROW_ENTRY);
		return 1;
	}
	backend = check_range(entry);
	if (!backend)
		return 1;
	/* Clause A5: our own copy, as much as both know. */
	memset(&ops, 0, sizeof(ops));
	memcpy(&ops, backend->ops,
	       backend->ops->size < sizeof(ops) ? backend->ops->size : sizeof(ops));
	check_open(&ops, backend->revision, &engine);
	if (!engine)
		return 1;
	check_query(&ops, engine);
	check_life(&ops, engine);
	return wrong;
}
