/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#include "plugin/here.h"

static size_t here_size(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}

volatile uint32_t *here_new(void)
{
	uint32_t *here =
		mmap(NULL, here_size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (here == MAP_FAILED)
		return NULL;
	if (madvise(here, here_size(), MADV_WIPEONFORK) != 0) {
		munmap(here, here_size());
		return NULL;
	}
	*here = 1;
	return here;
}

void here_free(volatile uint32_t *here)
{
	if (here)
		munmap((void *)(uintptr_t)here, here_size());
}

static volatile uint32_t *_Atomic noted; /* for good: engines come and go */

void here_note(void)
{
	volatile uint32_t *none = NULL, *here;

	if (atomic_load(&noted))
		return;
	here = here_new();
	if (!atomic_compare_exchange_strong(&noted, &none, here))
		here_free(here);
}

bool here_is_child(void)
{
	const volatile uint32_t *here = atomic_load(&noted);

	return here && !*here;
}
