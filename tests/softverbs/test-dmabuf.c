/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Dma-bufs are offered where every driver and the kernel take them, with the rights that a registration has, and nobody
 * forbids it.  What they say is made up: the program's own ibv_reg_dmabuf_mr() stands before that of the library.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <infiniband/verbs.h>

#include "backends/engine/engine.h"
#include "tests/lib/testing.h"
#include "tests/unit/rdma-host.h"
#include "tests/unit/rdma-kit.h"

#define FD 77 /* house: no number of ours */

/* What a driver answers to a descriptor that is none, by device; and to one that is.  0: it gives a registration. */
static int answers[2];
static uint8_t page[4096];
/* The rights that the kernel lets a registration of one have. */
static int rights;
static int registered;
static int taken = EIO; /* what becomes of one that is */

/* Those that Linux does, up to 6.18 at least (uverbs_std_types_mr.c, UVERBS_METHOD_REG_DMABUF_MR; ibv_reg_mr(3)). */
#define LINUX_RIGHTS                                                                               \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |               \
	 IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_RELAXED_ORDERING)
#define WITH_WINDOWS (LINUX_RIGHTS | IBV_ACCESS_MW_BIND)

struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova,
				 int fd, int access)
{
	int second = !strcmp(ibv_get_device_name(pd->context->device), "softverbs1");

	/* Never with rights for a peer, as any registration. */
	ck_assert_int_eq(access & (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
				   IBV_ACCESS_REMOTE_ATOMIC),
			 0);
	/* In the kernel's order: is there such a driver, the rights, the descriptor. */
	if (answers[second] == EBADF && (access & ~rights)) {
		errno = EINVAL;
		return NULL;
	}
	if (!answers[second])
		return ibv_reg_mr(pd, page, sizeof(page), 0);
	if (answers[second] != EBADF || fd != FD) {
		errno = answers[second];
		return NULL;
	}
	ck_assert_uint_eq(offset, 4096);
	ck_assert_uint_eq(length, 8192);
	ck_assert_uint_eq(iova, 1 << 20);
	registered++;
	errno = taken;
	return NULL;
}

static void open_with(struct end *e, const char *key)
{
	const char *const with[] = {key, NULL};

	end_open(e, 'd', with);
}

/* What query says, and what becomes of one. */
static escrow_status offer(struct end *e, uint64_t *caps)
{
	struct escrow_limits limits = {.size = sizeof(limits)};
	struct escrow_error error = {.size = sizeof(error)};
	struct escrow_region_args args = {.size = sizeof(args),
					  .addr = (void *)(1 << 20), /* house: an I/O address */
					  .length = 8192,
					  .memory_kind = ESCROW_MEMORY_DMABUF,
					  .dmabuf_fd = FD,
					  .dmabuf_offset = 4096};
	uint64_t region;

	ck_assert_int_eq(OPS->query(e->engine, &limits), ESCROW_OK);
	*caps = limits.caps & ESCROW_CAP_DMABUF;
	ck_assert_int_eq(limits.memory_kinds >> ESCROW_MEMORY_DMABUF & 1, *caps != 0);
	return OPS->register_memory(e->engine, &args, &region, &error);
}

struct situation {
	int answers[2];
	int rights;
	const char *key;
	bool offered;
};

static const struct situation situations[] = {
	{{EBADF, EBADF}, WITH_WINDOWS, "rdma.dmabuf=1", true},
	{{EBADF, EBADF}, WITH_WINDOWS, "rdma.dmabuf=0", false},
	{{EBADF, EOPNOTSUPP}, WITH_WINDOWS, "rdma.dmabuf=1", false},
	{{EBADF, EOPNOTSUPP}, WITH_WINDOWS, "rdma.rails=softverbs0", true},
	{{EPROTONOSUPPORT, EBADF}, WITH_WINDOWS, "rdma.dmabuf=1", false},
	{{EOPNOTSUPP, EOPNOTSUPP}, WITH_WINDOWS, "rdma.dmabuf=1", false},
	/* Who registers what is none has not looked at it. */
	{{0, EBADF}, WITH_WINDOWS, "rdma.dmabuf=1", false},
	/* No window could be bound to one, and no registration is without. */
	{{EBADF, EBADF}, LINUX_RIGHTS, "rdma.dmabuf=1", false},
	{{EBADF, EBADF}, LINUX_RIGHTS, "rdma.rails=softverbs0", false},
	/* Every right that a registration would have is asked for. */
	{{EBADF, EBADF}, WITH_WINDOWS, "rdma.relaxed_ordering=1", true},
	{{EBADF, EBADF},
	 WITH_WINDOWS & ~IBV_ACCESS_RELAXED_ORDERING,
	 "rdma.relaxed_ordering=1",
	 false},
};

START_TEST(where_every_driver_takes_them)
{
	const struct situation *s = &situations[_i];
	uint64_t caps;
	struct end e;

	memcpy(answers, s->answers, sizeof(answers));
	rights = s->rights;
	open_with(&e, s->key);
	/* The registration is tried once, on the first device, and fails there. */
	ck_assert_int_eq(offer(&e, &caps), s->offered ? ESCROW_E_DEVICE : ESCROW_E_UNSUPPORTED);
	ck_assert_int_eq(caps != 0, s->offered);
	ck_assert_int_eq(registered, s->offered);
	end_close(&e);
}
END_TEST

/* One that is none, or too small, is the host's to mend; of what may be locked it takes nothing. */
static const struct {
	int errnum;
	escrow_status status;
} refusals[] = {
	{EBADF, ESCROW_E_INVALID},
	{EINVAL, ESCROW_E_INVALID},
	{ENOMEM, ESCROW_E_NO_MEMORY},
	{EAGAIN, ESCROW_E_NO_MEMORY},
};

START_TEST(why_one_is_refused)
{
	uint64_t caps;
	struct end e;

	answers[0] = answers[1] = EBADF;
	rights = WITH_WINDOWS;
	taken = refusals[_i].errnum;
	open_with(&e, "rdma.dmabuf=1");
	rdma_host_locks(4096);
	ck_assert_int_eq(offer(&e, &caps), refusals[_i].status);
	end_close(&e);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("rdma-dmabuf");
	TCase *t = tcase_create("offers");

	tcase_set_timeout(t, 120);
	tcase_add_loop_test(t, where_every_driver_takes_them, 0,
			    (int)(sizeof(situations) / sizeof(situations[0])));
	tcase_add_loop_test(t, why_one_is_refused, 0,
			    (int)(sizeof(refusals) / sizeof(refusals[0])));
	suite_add_tcase(s, t);
	return testing_run(s);
}
