/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which native answers of a device are proofs.  A zero that hides a failed step releases nothing
 * here; the table says for each provider what was read in its source.  Everything that is not
 * listed is weak.
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "backends/rdma/rdma.h"

#define WEAK_ALL                                                                                   \
	(ESCROW_WEAK_RESET | ESCROW_WEAK_DEREG | ESCROW_WEAK_DEALLOC_WINDOW | ESCROW_WEAK_DESTROY)

/*
 * mlx5: RESET is the 2RST_QP command and its failure is returned; destroy_qp swallows the same
 *   failure (drivers/infiniband/hw/mlx5/qp.c, mlx5_ib_destroy_qp); dereg_mr waits for the UMR or
 *   DESTROY_MKEY before it unpins (mr.c, mlx5_revoke_mr); dealloc_mw returns the command's result.
 * rxe: software; reset, dereg and dealloc act before they answer (drivers/infiniband/sw/rxe);
 *   destroy_qp answers 0 after its clean-up timed out (rxe_pool.c, __rxe_cleanup).
 */
static const struct provider providers[] = {
	{.name = "mlx5", .weak = ESCROW_WEAK_DESTROY, .exact_windows = 1},
	/* Windows are not held to their range: see native.h. */
	{.name = "rxe", .weak = ESCROW_WEAK_DESTROY},
	{.name = "softverbs", .weak = ESCROW_WEAK_DESTROY, .exact_windows = 1},
	{.name = "mlx4", .weak = WEAK_ALL},
	{.name = "bnxt_re", .weak = WEAK_ALL},
	{.name = "hns", .weak = WEAK_ALL},
	{.name = "efa", .weak = WEAK_ALL},
	{.name = "erdma", .weak = WEAK_ALL},
	{.name = "mana", .weak = WEAK_ALL},
	{.name = "irdma", .weak = WEAK_ALL},
	{.name = "unknown", .weak = WEAK_ALL},
	{.name = "iwarp",
	 .weak = WEAK_ALL,
	 .refused = 1,
	 .why = "iWARP gives no end-to-end acknowledgement, and its providers unmap queues before "
		"the kernel answers"},
};

/* PCI vendor identities, and what software devices report (drivers/infiniband/sw/rxe/rxe_param.h). */
static const struct {
	uint32_t vendor;
	uint32_t first_part;
	uint32_t last_part;
	const char *name;
} identities[] = {
	{0x02c9, 0x1000, 0x100f, "mlx4"},       {0x02c9, 0x1010, 0xffffffff, "mlx5"},
	{0x15b3, 0x1010, 0xffffffff, "mlx5"},   {0xffffff, 0, 0xffffffff, "rxe"},
	{0x5f5e5f, 0, 0xffffffff, "softverbs"}, {0x14e4, 0, 0xffffffff, "bnxt_re"},
	{0x8086, 0, 0xffffffff, "irdma"},       {0x19e5, 0, 0xffffffff, "hns"},
	{0x1d0f, 0, 0xffffffff, "efa"},         {0x1ded, 0, 0xffffffff, "erdma"},
	{0x1414, 0, 0xffffffff, "mana"},
};

static const struct provider *named(const char *name)
{
	for (size_t i = 0; i < sizeof(providers) / sizeof(providers[0]); i++)
		if (!strcmp(providers[i].name, name))
			return &providers[i];
	return NULL;
}

const struct provider *provider_of(const struct ibv_context *verbs,
				   const struct ibv_device_attr *attr)
{
	if (verbs->device->transport_type == IBV_TRANSPORT_IWARP)
		return named("iwarp");
	for (size_t i = 0; i < sizeof(identities) / sizeof(identities[0]); i++)
		if (identities[i].vendor == attr->vendor_id &&
		    attr->vendor_part_id >= identities[i].first_part &&
		    attr->vendor_part_id <= identities[i].last_part)
			return named(identities[i].name);
	return named("unknown");
}

static bool is_set(const char *name)
{
	const char *value = getenv(name);

	return value && strcmp(value, "0") != 0;
}

const char *provider_environment(void)
{
	/*
	 * With the first one set, libibverbs turns every EIO of a destroy verb into success
	 * (libibverbs/cmd_write.h, verbs_is_destroy_err).  It reads the environment once, at its
	 * start, so what counts is the variable in the library, if it can be found.
	 */
	const bool *in_library = dlsym(RTLD_DEFAULT, "verbs_allow_disassociate_destroy");

	if ((in_library && *in_library) || is_set("RDMAV_ALLOW_DISASSOC_DESTROY"))
		return "RDMAV_ALLOW_DISASSOC_DESTROY";
	if (is_set("MLX4_DEVICE_FATAL_CLEANUP"))
		return "MLX4_DEVICE_FATAL_CLEANUP";
	return NULL;
}
