/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/softverbs/custody.h"

#include <stdio.h>

#include "tests/softverbs/log.h"
#include "tests/softverbs/softverbs.h"

struct custody_range {
	uintptr_t from;
	uintptr_t to;
	bool reads_too;
};

static struct custody_range *custody_ranges;
static size_t custody_count;
static size_t custody_room;
static softverbs_access_fn custody_observer;

void custody_check(const void *addr, uint64_t length, bool write, bool remote)
{
	uintptr_t from = (uintptr_t)addr, to = from + length;
	size_t i;

	if (custody_observer)
		custody_observer(&(struct softverbs_access){
			.addr = addr, .length = length, .writes = write, .remote = remote});
	for (i = 0; i < custody_count; i++) {
		const struct custody_range *r = &custody_ranges[i];

		if (to <= r->from || from >= r->to || (!write && !r->reads_too))
			continue;
		fprintf(stderr, "softverbs: the device %s %p..%p, of which %p..%p was given back\n",
			write ? "writes" : "reads", addr, (const void *)to, (const void *)r->from,
			(const void *)r->to);
		log_flush();
		abort();
	}
}

void custody_land(const void *to, const void *from, size_t size)
{
	if (custody_observer)
		custody_observer(&(struct softverbs_access){
			.addr = to, .length = size, .bytes = from, .writes = 1, .remote = 1});
}

EXPORT void softverbs_observe(softverbs_access_fn fn)
{
	base_lock();
	custody_observer = fn;
	base_unlock();
}

EXPORT int softverbs_forbid(const void *addr, size_t length, int reads_too)
{
	struct custody_range *more;

	base_lock();
	if (custody_count == custody_room) {
		more = realloc(custody_ranges, (custody_room * 2 + 16) * sizeof(*more));
		if (!more) {
			base_unlock();
			return -1;
		}
		custody_ranges = more;
		custody_room = custody_room * 2 + 16;
	}
	custody_ranges[custody_count++] =
		(struct custody_range){(uintptr_t)addr, (uintptr_t)addr + length, reads_too != 0};
	base_unlock();
	return 0;
}

EXPORT int softverbs_permit(const void *addr, size_t length)
{
	uintptr_t from = (uintptr_t)addr;
	size_t i;
	int rc = -1;

	base_lock();
	for (i = 0; i < custody_count; i++) {
		if (custody_ranges[i].from != from || custody_ranges[i].to != from + length)
			continue;
		custody_ranges[i] = custody_ranges[--custody_count];
		rc = 0;
		break;
	}
	base_unlock();
	return rc;
}
