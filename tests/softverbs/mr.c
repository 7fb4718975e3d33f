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
#include "tests/softverbs/registry.h"
#include "tests/softverbs/script.h"

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

/*
 * A key is index:24, tag:8. Processes share the rail, and no two of its regions may have one key: so
 * the indices are handed to them in blocks, the first by the number of the node.
 */
#define BLOCK_BITS 14u
#define BLOCK_KEYS (1u << BLOCK_BITS)
struct key_slot {
	struct mr *mr;
	struct mw *mw;
	/* Its context went away first: the object is still the program's, the key is nobody's. */
	bool dead;
};

struct key_table {
	struct key_slot *blocks[FABRIC_NODES];
	/* Indices that were given back; the last one is taken first. */
	uint32_t *free;
	uint32_t free_count, free_room;
	/* How many keys of the blocks, in the order in which the process got them, were ever taken. */
	uint32_t fresh;
};

static struct key_table *key_tables[RAILS_MAX];
/* The process's blocks, after its node's; the same on all rails. */
static uint16_t key_more[FABRIC_NODES];
static unsigned int key_nmore;

static bool key_block(struct key_table *t, unsigned int nth, uint16_t *block)
{
	*block = nth ? key_more[nth - 1] : fabric_node();
	if (!t->blocks[*block])
		t->blocks[*block] = calloc(BLOCK_KEYS, sizeof(struct key_slot));
	return t->blocks[*block] != NULL;
}

/* One that was never taken, or 0. The first of each block is not, so that no key is 0. */
static uint32_t key_fresh(struct key_table *t)
{
	unsigned int nth = t->fresh / (BLOCK_KEYS - 1);
	uint16_t block;
	int more;

	if (nth > key_nmore) {
		more = nth < FABRIC_NODES ? registry_claim_block() : -1;
		if (more < 0)
			return 0;
		key_more[key_nmore++] = (uint16_t)more;
	}
	if (!key_block(t, nth, &block))
		return 0;
	return (uint32_t)block << BLOCK_BITS | (1 + t->fresh++ % (BLOCK_KEYS - 1));
}

static struct key_slot *key_slot(struct key_table *t, uint32_t index)
{
	struct key_slot *block = t->blocks[index >> BLOCK_BITS];

	return block ? &block[index % BLOCK_KEYS] : NULL;
}

uint32_t key_take(int rail, struct mr *mr, struct mw *mw)
{
	struct key_table *t = key_tables[rail];
	struct key_slot *s;
	uint32_t index;

	if (!t)
		t = key_tables[rail] = calloc(1, sizeof(*t));
	if (!t)
		return 0;
	index = t->free_count ? t->free[--t->free_count] : key_fresh(t);
	if (!index)
		return 0;
	s = key_slot(t, index);
	s->mr = mr;
	s->mw = mw;
	s->dead = false;
	return index << 8;
}

void key_give(int rail, uint32_t key)
{
	struct key_table *t = key_tables[rail];
	struct key_slot *s = key_slot(t, key >> 8);
	uint32_t *room;

	s->mr = NULL;
	s->mw = NULL;
	if (t->free_count == t->free_room) {
		room = realloc(t->free, sizeof(*room) * (t->free_room * 2 + 64));
		if (!room)
			return; /* one key less */
		t->free = room;
		t->free_room = t->free_room * 2 + 64;
	}
	t->free[t->free_count++] = key >> 8;
}

static uint64_t
	mr_locked; /* bytes of all regions of the process, over all devices, as the kernel counts */

void key_forked(void)
{
	mr_locked = 0;
	memset(key_tables, 0, sizeof(key_tables));
	key_nmore = 0;
	registry_forked();
}

static void key_abandon_block(struct key_slot *block, const struct context *ctx)
{
	unsigned int i;

	for (i = 0; block && i < BLOCK_KEYS; i++) {
		struct key_slot *s = &block[i];

		if ((s->mr && s->mr->pd->ctx == ctx) || (s->mw && s->mw->pd->ctx == ctx))
			s->dead = true;
	}
}

void key_abandon(int rail, const struct context *ctx)
{
	struct key_table *t = key_tables[rail];
	unsigned int i;

	for (i = 0; t && i < FABRIC_NODES; i++)
		key_abandon_block(t->blocks[i], ctx);
}

static struct key_slot *key_find(int rail, uint32_t key)
{
	struct key_table *t = key_tables[rail];
	struct key_slot *s = t ? key_slot(t, key >> 8) : NULL;

	return s && !s->dead ? s : NULL;
}

struct mw *key_window(int rail, uint32_t key)
{
	struct key_slot *s = key_find(rail, key);

	return s ? s->mw : NULL;
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
