/* SPDX-License-Identifier: BSD-2-Clause */
#define _GNU_SOURCE
#include "tests/conform/subject.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>

#include "tests/conform/guard.h"
#include "tests/conform/trail.h"
#include "tests/conform/verdict.h"

bool subject_owns(const struct subject *s, const void *address)
{
	struct link_map *map = NULL;
	Dl_info info;

	return !dlinfo(s->handle, RTLD_DI_LINKMAP, &map) && dladdr(address, &info) &&
	       (uintptr_t)info.dli_fbase == (uintptr_t)map->l_addr;
}

void subject_load(struct subject *s, const char *path)
{
	void *symbol;

	memset(s, 0, sizeof(*s));
	s->path = path;
	trail("dlopen");
	s->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	expect_as("S0", s->handle, "it cannot be loaded: %s", dlerror());
	symbol = dlsym(s->handle, ESCROW_ENTRY);
	expect_as("A1", symbol, "it has no symbol " ESCROW_ENTRY);
	expect_as("A6", subject_owns(s, symbol),
		  "the entry is a dependency's, not of the object itself");
	memcpy(&s->entry, &symbol, sizeof(symbol));
}

struct escrow_hello *subject_hello(uint32_t rev_min, uint32_t rev_max)
{
	struct escrow_hello h = {
		.size = sizeof(h),
		.rev_min = rev_min,
		.rev_max = rev_max,
		.host_name = guard_string("escrow-conform"),
		.host_version = guard_string("1"),
	};

	return guard_copy(&h, sizeof(h));
}

void subject_negotiate(struct subject *s)
{
	struct escrow_error error = {.size = sizeof(error)};
	size_t mark = guard_mark();
	const struct escrow_ops *ops;

	trail("entry");
	s->backend = s->entry(subject_hello(1, ESCROW_REVISION), &error);
	guard_poison(mark);
	expect_as("A3", s->backend, "the entry refuses revision 1: %s", error.text);
	ops = s->backend->ops;
	expect_as("A5", ops, "the descriptor has no table");
	expect_as("L1", ops->size >= 16 && ops->size <= 4096, "the table says it has %u bytes",
		  ops->size);
	memcpy(&s->ops, ops, ops->size < sizeof(s->ops) ? ops->size : sizeof(s->ops));
}

const struct escrow_option *subject_option(const struct subject *s, uint32_t i)
{
	const char *at = (const char *)s->backend->options;

	return (const struct escrow_option *)(const void *)(at +
							    (size_t)i * s->backend->options_stride);
}

bool subject_has_option(const struct subject *s, const char *key)
{
	uint32_t i;

	for (i = 0; i < s->backend->noptions; i++)
		if (!strcmp(subject_option(s, i)->key, key))
			return true;
	return false;
}
