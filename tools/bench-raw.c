/* SPDX-License-Identifier: BSD-2-Clause */
/* The programs that do the load on bare verbs (tests/bench/raw.c), one beside each end. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/bench.h"
#include "tools/tool.h"

/* The last value that is set for a key, or the default. */
static const char *setting(char *const *settings, const char *key, const char *preset)
{
	size_t len = strlen(key);

	for (; settings && *settings; settings++)
		if (!strncmp(*settings, key, len) && (*settings)[len] == '=')
			preset = *settings + len + 1;
	return preset;
}

static bool start(struct bench_raw *raw)
{
	const char *set = g_getenv("ESCROW_BENCH_RAW");
	const char *program = set && *set ? set : PKGLIBEXECDIR "/escrow-bench-raw";
	char *const words[] = {(char *)(uintptr_t)program, NULL};
	int pair[2];

	if (access(program, X_OK)) {
		tool_complain("bench: --baseline raw: %s: %s", program, g_strerror(errno));
		return false;
	}
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair)) {
		tool_complain("bench: no socket pair: %s", g_strerror(errno));
		return false;
	}
	raw->pid = demo_spawn(words, pair[1]);
	close(pair[1]);
	raw->channel = pair[0];
	if (raw->pid > 0)
		return true;
	close(pair[0]);
	raw->pid = 0;
	return false;
}

/* Something is told, something is answered: the answer is in *m. */
static bool ask(const struct bench_raw *raw, const void *bytes, size_t len, struct demo_message *m)
{
	if (demo_send(raw->channel, DEMO_BASELINE, 0, bytes, (uint32_t)len) &&
	    demo_await(raw->channel, m) > 0)
		return true;
	tool_complain("bench: the program of the raw verbs has ended");
	return false;
}

void bench_raw_stop(struct bench_raw *raw)
{
	if (!raw->pid)
		return;
	close(raw->channel);
	waitpid(raw->pid, NULL, 0);
	raw->pid = 0;
}

/* ---- The requester's ------------------------------------------------------------------------------------------- */
/* Where one is, is bytes to everybody but the other. */
static bool meet(struct bench_requester *r, struct bench_raw_args *args)
{
	struct demo_message *m = r->message;
	g_autoptr(GByteArray) both = g_byte_array_new();

	if (!ask(&r->raw, args, sizeof(*args), m))
		return false;
	g_byte_array_append(both, (const guint8 *)args, sizeof(*args));
	g_byte_array_append(both, m->bytes, m->len);
	return demo_send(r->end.channel, DEMO_BASELINE, 0, both->data, both->len) &&
	       demo_hear(&r->end, DEMO_BASELINE, m) && ask(&r->raw, m->bytes, m->len, m);
}

bool bench_raw_pair(struct bench_requester *r)
{
	/* 128 is the backend's default, escrow info rdma. */
	const char *depth = setting(r->set.settings, "send_depth", "128");
	struct bench_raw_args args = {
		.connections = (uint32_t)r->connections,
		.rails = (uint32_t)strtoul(setting(r->set.settings, "max_rails", "0"), NULL, 10),
		.depth = (uint32_t)strtoul(depth, NULL, 10),
		.hugepages = r->set.hugepages,
		.bytes = 2 * r->o->area,
	};

	g_strlcpy(args.devices, setting(r->set.settings, "rdma.rails", ""), sizeof(args.devices));
	return start(&r->raw) && meet(r, &args);
}

bool bench_raw_point(struct bench_requester *r, const struct bench_work *work,
		     struct bench_result *result)
{
	struct bench_result one;

	if (!ask(&r->raw, work, sizeof(*work), r->message) || r->message->len != sizeof(one))
		return false;
	memcpy(&one, r->message->bytes, sizeof(one));
	bench_result_add(result, &one);
	return true;
}

/* ---- The source's ---------------------------------------------------------------------------------------------- */
bool bench_raw_answer(struct bench_raw *raw, const struct demo_settings *set, int channel,
		      struct demo_message *m)
{
	g_autoptr(GByteArray) here = g_byte_array_new(), there = g_byte_array_new();
	struct bench_raw_args args;

	if (raw->pid || m->len < sizeof(args))
		return false;
	memcpy(&args, m->bytes, sizeof(args));
	g_strlcpy(args.devices, setting(set->settings, "rdma.rails", ""), sizeof(args.devices));
	g_byte_array_append(there, m->bytes + sizeof(args), m->len - (guint)sizeof(args));
	if (!start(raw) || !ask(raw, &args, sizeof(args), m))
		return false;
	g_byte_array_append(here, m->bytes, m->len);
	/* The answer may go out only when this end can be written to. */
	return ask(raw, there->data, there->len, m) &&
	       demo_send(channel, DEMO_BASELINE, 0, here->data, here->len);
}
