/* SPDX-License-Identifier: BSD-2-Clause */
/* What the kernel lets this process lock, and how much it has locked. */
#include <linux/capability.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "backends/rdma/rdma.h"

uint64_t memlock_pinned(void)
{
	FILE *f = fopen("/proc/self/status", "re");
	unsigned long long kb = 0;
	char line[128];

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "VmPin: %llu", &kb) == 1)
			break;
	if (f)
		fclose(f);
	return (uint64_t)kb << 10;
}

/* CAP_IPC_LOCK lifts the limit (capabilities(7)); seen from a user namespace it may only seem to be there. */
static bool may_lock_all(void)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2] = {{0}};

	return syscall(SYS_capget, &head, data) == 0 && (data[0].effective & (1u << CAP_IPC_LOCK));
}

/* Behind a file of uverbs is a kernel that pins; a double in user space has no such file. */
static bool is_pinned_for(const struct native_context *c)
{
	struct stat st;

	return fstat(c->verbs->cmd_fd, &st) == 0 && S_ISCHR(st.st_mode);
}

bool memlock_holds(uint64_t *limit)
{
	struct rlimit r;

	if (getrlimit(RLIMIT_MEMLOCK, &r) || r.rlim_cur == RLIM_INFINITY || may_lock_all())
		return false;
	*limit = r.rlim_cur;
	return true;
}

int memlock_limit(const struct native *n, uint64_t *limit)
{
	bool pinned = false;

	for (uint32_t i = 0; i < n->ncontexts; i++)
		pinned |= n->contexts[i] && is_pinned_for(n->contexts[i]);
	return pinned && memlock_holds(limit);
}

uint64_t memlock_pages(const void *addr, uint64_t length)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)addr & (page - 1);

	return (from + length + page - 1) & ~(page - 1);
}

uint64_t memlock_locked(const struct native *n)
{
	(void)n;
	return memlock_pinned();
}
