/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/softverbs/mr.h"

#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/softverbs/custody.h"
#include "tests/softverbs/fabric.h"
#include "tests/softverbs/qp.h"
#include "tests/softverbs/script.h"

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

/* A key is node:10, index:14, tag:8. The node is in it because processes share the rail, and no two of
 * its regions may have one key. */
#define KEYS_MAX (DEVICE_MAX_OBJECTS + 1)
struct key_slot {
	struct mr *mr;
	struct mw *mw;
	/* Its context went away first: the object is still the program's, the key is nobody's. */
	bool dead;
};

struct key_table {
	struct key_slot slots[KEYS_MAX];
	/* Indices that were given back; the last one is taken first. */
	uint16_t free[KEYS_MAX];
	unsigned int free_count;
	unsigned int fresh;
};

static struct key_table *key_tables[RAILS_MAX];

uint32_t key_take(int rail, struct mr *mr, struct mw *mw)
{
	struct key_table *t = key_tables[rail];
	unsigned int index;

	if (!t)
		t = key_tables[rail] = calloc(1, sizeof(*t));
	if (!t)
		return 0;
	if (t->free_count)
		index = t->free[--t->free_count];
	else if (t->fresh + 1 < KEYS_MAX)
		index = ++t->fresh;
	else
		return 0;
	t->slots[index].mr = mr;
	t->slots[index].mw = mw;
	t->slots[index].dead = false;
	return ((uint32_t)fabric_node() << 22) | (index << 8);
}

void key_give(int rail, uint32_t key)
{
	struct key_table *t = key_tables[rail];
	unsigned int index = (key >> 8) % KEYS_MAX;

	t->slots[index].mr = NULL;
	t->slots[index].mw = NULL;
	t->free[t->free_count++] = (uint16_t)index;
}

static uint64_t
	mr_locked; /* bytes of all regions of the process, over all devices, as the kernel counts */

void key_forked(void)
{
	mr_locked = 0;
	memset(key_tables, 0, sizeof(key_tables));
}

void key_abandon(int rail, const struct context *ctx)
{
	struct key_table *t = key_tables[rail];
	unsigned int i;

	for (i = 1; t && i <= t->fresh; i++) {
		struct key_slot *s = &t->slots[i];

		if ((s->mr && s->mr->pd->ctx == ctx) || (s->mw && s->mw->pd->ctx == ctx)) {
			s->dead = true;
		}
	}
}

static struct key_slot *key_find(int rail, uint32_t key)
{
	struct key_table *t = key_tables[rail];

	if (!t || key >> 22 != (uint32_t)fabric_node())
		return NULL;
	if (t->slots[(key >> 8) % KEYS_MAX].dead)
		return NULL;
	return &t->slots[(key >> 8) % KEYS_MAX];
}

static bool range_within(uint64_t addr, uint64_t length, uint64_t base, uint64_t size)
{
	return addr >= base && length <= size && addr - base <= size - length;
}

static void *mr_place(const struct mr *mr, uint64_t addr, uint64_t length, bool write, bool remote)
{
	char *place = (char *)mr->ib.addr + (addr - mr->iova);

	custody_check(place, length, write, remote);
	return place;
}

void *mr_local(struct pd *pd, uint32_t lkey, uint64_t addr, uint64_t length, bool write)
{
	struct key_slot *s = key_find(pd->ctx->device->rail, lkey);
	struct mr *mr = s ? s->mr : NULL;

	if (!mr || mr->key != lkey || mr->pd != pd)
		return NULL;
	if (!range_within(addr, length, mr->iova, mr->ib.length))
		return NULL;
	if (write && !(mr->access & IBV_ACCESS_LOCAL_WRITE))
		return NULL;
	return mr_place(mr, addr, length, write, false);
}

static void *mw_remote(struct qp *qp, struct mw *mw, uint64_t addr, uint64_t length,
		       unsigned int access)
{
	if (mw->state != MW_BOUND || mw->pd != qp->pd || !(mw->access & access))
		return NULL;
	if (mw->ib.type == IBV_MW_TYPE_2 && mw->qp != qp)
		return NULL;
	if (!range_within(addr, length, mw->addr, mw->length))
		return NULL;
	return mr_place(mw->mr, addr, length, access != IBV_ACCESS_REMOTE_READ, true);
}

void *mr_remote(struct qp *qp, uint32_t rkey, uint64_t addr, uint64_t length, unsigned int access)
{
	struct key_slot *s = key_find(qp->ctx->device->rail, rkey);

	if (!s)
		return NULL;
	if (s->mw)
		return s->mw->key == rkey ? mw_remote(qp, s->mw, addr, length, access) : NULL;
	if (!s->mr || s->mr->key != rkey || s->mr->pd != qp->pd || !(s->mr->access & access))
		return NULL;
	if (!range_within(addr, length, s->mr->iova, s->mr->ib.length))
		return NULL;
	return mr_place(s->mr, addr, length, access != IBV_ACCESS_REMOTE_READ, true);
}

/* Whether every page is mapped: the kernel answers EFAULT where it cannot pin one. */
static bool mr_is_mapped(const void *addr, size_t length)
{
	unsigned char vec[1024];
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t at = (uintptr_t)addr & ~(page - 1);
	uintptr_t end = (uintptr_t)addr + length;

	while (at < end) {
		size_t step = end - at < page * sizeof(vec) ? end - at : page * sizeof(vec);

		if (mincore((void *)at, step, vec))
			return false;
		at += step;
	}
	return true;
}

static int mr_check(const void *addr, size_t length, uint64_t iova, unsigned int access)
{
	const unsigned int known = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				   IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
				   IBV_ACCESS_MW_BIND | IBV_ACCESS_HUGETLB |
				   (unsigned int)IBV_ACCESS_OPTIONAL_RANGE;
	const unsigned int remote_write = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;

	if (access & (IBV_ACCESS_ON_DEMAND | IBV_ACCESS_ZERO_BASED))
		return EOPNOTSUPP;
	/* ib_check_mr_access(): remote write needs local write. */
	if ((access & ~known) || ((access & remote_write) && !(access & IBV_ACCESS_LOCAL_WRITE)))
		return EINVAL;
	if (length == 0 || length > DEVICE_MAX_MR || (uintptr_t)addr + length < (uintptr_t)addr ||
	    iova + length < iova)
		return EINVAL;
	return mr_is_mapped(addr, length) ? 0 : EFAULT;
}

static bool mr_may_lock_all(void)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2] = {{0}};

	return syscall(SYS_capget, &head, data) == 0 && (data[0].effective & (1u << CAP_IPC_LOCK));
}

/* ib_umem_get(): pages, each region anew; only where a test asks for it, since softverbs pins nothing and
 * is for everybody. */
bool mr_counts_locked(void)
{
	const char *wanted = getenv("SOFTVERBS_MEMLOCK");

	return wanted && strcmp(wanted, "1") == 0;
}

static bool mr_may_lock(uint64_t bytes)
{
	struct rlimit limit;

	if (!mr_counts_locked() || mr_may_lock_all())
		return true;
	return getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || mr_locked + bytes <= limit.rlim_cur;
}

static uint64_t mr_pages(const void *addr, size_t length)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)addr & ~(page - 1);

	return (((uintptr_t)addr + length + page - 1) & ~(page - 1)) - first;
}

static struct mr *mr_make(struct pd *pd, void *addr, size_t length, uint64_t iova,
			  unsigned int access)
{
	uint64_t pages = mr_pages(addr, length);
	struct mr *mr = mr_may_lock(pages) ? calloc(1, sizeof(*mr)) : NULL;
	int rail = pd->ctx->device->rail;

	if (!mr)
		return NULL;
	mr->key = key_take(rail, mr, NULL);
	if (!mr->key) {
		free(mr);
		return NULL;
	}
	mr->locked = pages;
	mr_locked += pages;
	object_init(&mr->obj, OBJECT_MR);
	mr->pd = pd;
	mr->iova = iova;
	mr->access = access;
	mr->ib.context = pd->ib.context;
	mr->ib.pd = &pd->ib;
	mr->ib.addr = addr;
	mr->ib.length = length;
	mr->ib.handle = mr->obj.id;
	mr->ib.lkey = mr->key;
	mr->ib.rkey = mr->key;
	pd->users++;
	pd->ctx->children++;
	return mr;
}

EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *ib, void *addr, size_t length, uint64_t iova,
				       unsigned int access)
{
	struct pd *pd = pd_of(ib);
	struct mr *mr = NULL;
	struct call call;
	int rc = mr_check(addr, length, iova, access);

	call_begin(&call, "reg_mr", &pd->obj, OBJECT_PD);
	if (pd->ctx->removed)
		call_on_context(&call, pd->ctx);
	call.rc = rc ? rc : ENOMEM;
	if (call_runs(&call) && !rc)
		mr = mr_make(pd, addr, length, iova, access);
	mr = call_end_create(&call, mr);
	return mr ? &mr->ib : NULL;
}

EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, (uintptr_t)addr, (unsigned int)access);
}

EXPORT struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
				      int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, iova, (unsigned int)access);
}

static int mr_destroy(struct mr *mr)
{
	if (mr->windows) {
		object_rule(false, "no window is bound to a region that is deregistered",
			    "dereg_mr", &mr->obj);
		/* rxe_dereg_mr(): EINVAL while num_mw > 0. */
		return EINVAL;
	}
	key_give(mr->pd->ctx->device->rail, mr->key);
	mr_locked -= mr->locked;
	mr->pd->users--;
	mr->pd->ctx->children--;
	object_retire(&mr->obj, mr);
	return 0;
}

EXPORT int ibv_dereg_mr(struct ibv_mr *ib)
{
	struct mr *mr = mr_of(ib);
	struct call call;

	call_begin_destroy(&call, "dereg_mr", &mr->obj, OBJECT_MR, mr->pd->ctx);
	if (call_runs(&call))
		call.rc = mr_destroy(mr);
	return call_end_destroy(&call);
}
