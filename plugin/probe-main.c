/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * escrow-probe: loads one backend, asks its entry, optionally opens and closes it, and tells what
 * it found on descriptor 3, line by line.  Only the line "done" is a verdict: whatever ends this
 * process before it, the backend did.  No GLib, so that the backend meets a plain process.
 *
 *   escrow-probe PATH [rails,]entry|open MILLISECONDS [KEY=VALUE...]
 */
#include <config.h>

#include <dlfcn.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <signal.h>
#include <poll.h>
#include <unistd.h>

#include <escrow/rails.h>

#include "plugin/probe.h"

static void tell(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* One line, in one write. */
static void tell(const char *format, ...)
{
	char line[PROBE_LINE];
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(line, sizeof(line) - 1, format, args);
	va_end(args);
	if (n < 0)
		return;
	if ((size_t)n > sizeof(line) - 2)
		n = sizeof(line) - 2;
	for (int i = 0; i < n; i++) {
		if (line[i] == '\n')
			line[i] = ' ';
	}
	line[n++] = '\n';
	if (write(PROBE_FD, line, (size_t)n) != n)
		_exit(1);
}

static void stage(const char *name)
{
	tell("stage %s", name);
}

static int fail(escrow_status status, const char *text)
{
	tell("fail %d %s", status, text);
	return 1;
}

/* ---- What the backend may use ------------------------------------------------------------------ */
static int32_t log_enabled(void *ctx, int32_t level)
{
	return 0;
}

static void log_text(void *ctx, int32_t level, const char *component, const char *text,
		     uint64_t len)
{
}

static void *alloc(void *ctx, uint64_t bytes, uint64_t align)
{
	void *p = NULL;

	return posix_memalign(&p, align, bytes) == 0 ? p : NULL;
}

static void release(void *ctx, void *p)
{
	free(p);
}

/* The probe is short: what it maps, its end unmaps. */
static void *dma_alloc(void *ctx, uint64_t bytes, uint64_t align)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

static void dma_free(void *ctx, void *p)
{
}

static uint64_t now_ns(void *ctx)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static const void *get_extension(void *ctx, const char *id)
{
	return NULL;
}

static const struct escrow_host services = {
	.size = sizeof(services),
	.log_enabled = log_enabled,
	.log = log_text,
	.alloc = alloc,
	.free = release,
	.dma_alloc = dma_alloc,
	.dma_free = dma_free,
	.now_ns = now_ns,
	.get_extension = get_extension,
};

/* ---- The stages -------------------------------------------------------------------------------- */
static int probe_close(const struct escrow_ops *ops, struct escrow_engine *engine, uint64_t ms)
{
	uint64_t deadline = now_ns(NULL) + ms * 1000000u;
	struct escrow_event event;
	escrow_status status;

	stage("close");
	status = ops->close(engine, deadline, ESCROW_CLOSE_GRACEFUL);
	if (status < 0)
		return fail(status, "close of an engine without anything in it failed");
	for (;;) {
		memset(&event, 0, sizeof(event));
		if (ops->poll(engine, &event, 1, sizeof(event), 0) != 1)
			poll(NULL, 0, 1);
		else if (event.kind == ESCROW_EV_CLOSED)
			break;
		else if (event.kind == ESCROW_EV_QUARANTINED)
			return fail(ESCROW_E_UNQUIESCED, "close ended in quarantine");
	}
	ops->release(engine);
	return 0;
}

static int probe_open(const struct escrow_backend *backend, uint64_t ms, char **settings, int n)
{
	struct escrow_kv kv[PROBE_MAX_SETTINGS];
	struct escrow_open_args args = {.size = sizeof(args),
					.host = &services,
					.revision = backend->revision,
					.kv = kv,
					.kv_stride = sizeof(kv[0]),
					.engine_name = "escrow-probe"};
	struct escrow_limits limits = {.size = sizeof(limits)};
	struct escrow_error error = {.size = sizeof(error)};
	struct escrow_engine *engine = NULL;
	escrow_status status;

	for (int i = 0; i < n && i < PROBE_MAX_SETTINGS; i++) {
		char *equals = strchr(settings[i], '=');

		if (!equals)
			return fail(ESCROW_E_INVALID, "a setting without \"=\"");
		*equals = '\0';
		kv[args.nkv].key = settings[i];
		kv[args.nkv++].value = equals + 1;
	}
	stage("open");
	status = backend->ops->open(&args, &engine, &error);
	error.text[sizeof(error.text) - 1] = '\0';
	if (status != ESCROW_OK)
		return fail(status, error.text);
	if (!engine)
		return fail(ESCROW_E_INVALID, "open answered OK and gave no engine");
	stage("query");
	status = backend->ops->query(engine, &limits);
	if (status != ESCROW_OK)
		return fail(status, "query of a new engine failed");
	return probe_close(backend->ops, engine, ms);
}

static int has_mandatory(const struct escrow_ops *ops)
{
	return ops && ops->size >= offsetof(struct escrow_ops, charges) && ops->release &&
	       ops->open && ops->query && ops->close && ops->poll;
}

static int probe_entry(void *object, const struct escrow_backend **backend)
{
	struct escrow_hello hello = {.size = sizeof(hello),
				     .rev_min = 1,
				     .rev_max = ESCROW_REVISION,
				     .host = &services,
				     .host_name = "escrow-probe",
				     .host_version = "1"};
	struct escrow_error error = {.size = sizeof(error)};
	escrow_entry_fn entry = NULL;

	stage("entry");
	*(void **)&entry = dlsym(object, ESCROW_ENTRY);
	if (!entry)
		return fail(ESCROW_E_INVALID, "no entry " ESCROW_ENTRY);
	*backend = entry(&hello, &error);
	error.text[sizeof(error.text) - 1] = '\0';
	if (!*backend)
		return fail(error.status < 0 ? error.status : ESCROW_E_INVALID, error.text);
	if ((*backend)->size < sizeof(**backend))
		return fail(ESCROW_E_INVALID, "the descriptor is shorter than that of revision 1");
	tell("revision %" PRIu32, (*backend)->revision);
	tell("caps %" PRIu64, (*backend)->caps);
	tell("residency %" PRIu64, (*backend)->residency);
	tell("id %.63s", (*backend)->id ? (*backend)->id : "");
	tell("version %.63s", (*backend)->version ? (*backend)->version : "");
	return 0;
}

/* A backend that is older than the question need not survive it. */
static int probe_rails(const struct escrow_backend *backend)
{
	const struct escrow_rails *rails = NULL;

	stage("rails");
	if (backend->ops && ESCROW_HAS(backend->ops, get_extension))
		rails = backend->ops->get_extension(NULL, ESCROW_RAILS_ID);
	if (!rails || rails->size < sizeof(*rails) || !rails->list)
		return fail(ESCROW_E_UNSUPPORTED, "it lists no rails");
	return 0;
}

static int probe_what(const struct escrow_backend *backend, int argc, char **argv)
{
	const char *what = argv[2];

	if (strncmp(what, PROBE_RAILS, sizeof(PROBE_RAILS) - 1) == 0) {
		what += sizeof(PROBE_RAILS) - 1;
		if (probe_rails(backend))
			return 1;
	}
	if (strcmp(what, "open") != 0)
		return 0;
	if (!has_mandatory(backend->ops))
		return fail(ESCROW_E_INVALID, "a mandatory slot is NULL");
	return probe_open(backend, strtoull(argv[3], NULL, 10), argv + 4, argc - 4);
}

int main(int argc, char **argv)
{
	struct rlimit no_core = {0, 0};
	const struct escrow_backend *backend;
	void *object;

	if (argc < 4)
		return 2;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setrlimit(RLIMIT_CORE, &no_core);
	stage("dlopen");
	object = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	if (!object)
		return fail(ESCROW_E_INVALID, dlerror());
	if (probe_entry(object, &backend) || probe_what(backend, argc, argv))
		_exit(1);
	stage("done");
	_exit(0); /* no destructor of the backend gets a say in the verdict */
}
