/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/softverbs/log.h"

#include <stdio.h>
#include <unistd.h>

#include "tests/softverbs/softverbs.h"

#define LOG_KEPT 16384

static struct softverbs_call log_ring[LOG_KEPT];
static uint64_t log_seq;
static FILE *log_file;
static bool log_opened;

/* SOFTVERBS_LOG is a path; "%p" in it becomes the process id. */
static void log_open(void)
{
	const char *path = getenv("SOFTVERBS_LOG");
	const char *mark = path ? strstr(path, "%p") : NULL;
	char name[256];

	log_opened = true;
	if (!path || !*path)
		return;
	if (mark)
		snprintf(name, sizeof(name), "%.*s%d%s", (int)(mark - path), path, (int)getpid(),
			 mark + 2);
	else
		snprintf(name, sizeof(name), "%s", path);
	log_file = fopen(name, "ae");
	if (!log_file)
		fprintf(stderr, "softverbs: cannot write SOFTVERBS_LOG=%s\n", name);
}

void log_call(const char *name, const struct object *obj, int rc, int errnum)
{
	struct softverbs_call *c = &log_ring[log_seq % LOG_KEPT];

	if (!log_opened)
		log_open();
	c->seq = ++log_seq;
	snprintf(c->name, sizeof(c->name), "%s", name);
	c->handle = obj;
	c->id = obj ? obj->id : 0;
	c->rc = rc;
	c->errnum = errnum;
	if (log_file)
		fprintf(log_file, "%llu %s %p %u %d %d\n", (unsigned long long)c->seq, name,
			(const void *)obj, c->id, rc, errnum);
}

void log_flush(void)
{
	if (log_file)
		fflush(log_file);
}

EXPORT size_t softverbs_log(uint64_t after, struct softverbs_call *out, size_t max)
{
	uint64_t seq;
	size_t n = 0;

	base_lock();
	seq = log_seq > LOG_KEPT ? log_seq - LOG_KEPT : 0;
	if (seq < after)
		seq = after;
	for (; seq < log_seq && n < max; seq++)
		out[n++] = log_ring[seq % LOG_KEPT];
	base_unlock();
	return n;
}
