/* SPDX-License-Identifier: BSD-2-Clause */
/* Why a transfer was refused, in the log of who asks for it: transfer itself has no place for a text. */
#include <inttypes.h>

#include "plugin/host.h"

static void tell_bytes(struct escrow_host_engine *host, const struct escrow_op *op,
		       escrow_status status)
{
	uint64_t length = 0;

	for (uint32_t i = 0; i < op->nsge; i++)
		length += op->sge[i].length;
	services_log(host->services, ESCROW_LOG_DEBUG,
		     "transfer: %s: opcode %" PRIu32 ", flags %" PRIu32 ", %" PRIu64
		     " bytes from %" PRIu64 " on of remote 0x%" PRIx64,
		     escrow_status_name(status), op->opcode, op->flags, length, op->remote_offset,
		     op->remote);
}

/* false: there is nothing to say of it. */
static bool tell_range(struct escrow_host_engine *host, const struct escrow_sge *sge, uint32_t i)
{
	struct host_region *region = table_find(&host->regions, sge->region);
	uint64_t length;

	if (!region) {
		services_log(host->services, ESCROW_LOG_DEBUG,
			     "transfer: range %" PRIu32 ": region 0x%" PRIx64
			     ": this engine has no such region",
			     i, sge->region);
		return true;
	}
	length = atomic_load(&region->length);
	if (sge->offset <= length && sge->length <= length - sge->offset)
		return false;
	services_log(host->services, ESCROW_LOG_DEBUG,
		     "transfer: range %" PRIu32 ": %" PRIu64 " bytes from %" PRIu64
		     " on: region 0x%" PRIx64 " has %" PRIu64,
		     i, sge->length, sge->offset, sge->region, length);
	return true;
}

void transfer_tell(struct escrow_host_engine *host, const struct escrow_op *op,
		   escrow_status status)
{
	struct services *services = host->services;

	if (!services_hear(services, ESCROW_LOG_DEBUG))
		return;
	if (op->nsge > host->lend.max_ranges || (op->nsge && !op->sge)) {
		services_log(services, ESCROW_LOG_DEBUG,
			     "transfer: nsge %" PRIu32 ", sge %p: 0 to %" PRIu32
			     " ranges are allowed",
			     op->nsge, (const void *)op->sge, host->lend.max_ranges);
		return;
	}
	if (!table_find(&host->remotes, op->remote)) {
		services_log(services, ESCROW_LOG_DEBUG,
			     "transfer: remote 0x%" PRIx64 ": this engine has no such remote",
			     op->remote);
		return;
	}
	for (uint32_t i = 0; i < op->nsge; i++)
		if (tell_range(host, &op->sge[i], i))
			return;
	tell_bytes(host, op, status);
}

void transfer_tell_args(struct escrow_host_engine *host, const struct escrow_op *op, uint32_t n,
			uint32_t stride, const uint64_t *ops)
{
	services_log(host->services, ESCROW_LOG_DEBUG,
		     "transfer: %" PRIu32 " ops at %p, stride %" PRIu32
		     ", handles at %p: 1 to %d ops, a stride of %zu or more that is a multiple of "
		     "8, and "
		     "both places are wanted",
		     n, (const void *)op, stride, (const void *)ops, INT32_MAX, sizeof(*op));
}
