/* SPDX-License-Identifier: BSD-2-Clause */
#include "backends/engine/entry.h"

#include <stddef.h>

#include "backends/engine/args.h"

/* All services of the host must be there (escrow/backend.h, struct escrow_host). */
escrow_status entry_check_host(const struct escrow_host *from, struct escrow_host *host,
			       struct escrow_error *error)
{
	escrow_status st = args_read(&args_host, from, host, error);

	if (st < 0)
		return st;
	if (!host->log_enabled || !host->log || !host->alloc || !host->free || !host->dma_alloc ||
	    !host->dma_free || !host->now_ns || !host->get_extension)
		return args_fail(error, ESCROW_E_INVALID,
				 "a service of struct escrow_host is NULL");
	return ESCROW_OK;
}

const struct escrow_backend *engine_entry(const struct escrow_backend *descriptor,
					  const struct escrow_hello *from,
					  struct escrow_error *error)
{
	struct escrow_hello hello;
	struct escrow_host host;

	if (args_read(&args_hello, from, &hello, error) < 0)
		return NULL;
	if (hello.host && entry_check_host(hello.host, &host, error) < 0)
		return NULL;
	if (hello.rev_min > hello.rev_max) {
		(void)args_fail(error, ESCROW_E_INVALID, "rev_min %u is above rev_max %u",
				hello.rev_min, hello.rev_max);
		return NULL;
	}
	if (hello.rev_min > ENGINE_REVISION || hello.rev_max < ENGINE_REVISION) {
		(void)args_fail(error, ESCROW_E_REVISION,
				"the host speaks revisions %u to %u, this backend %u to %u",
				hello.rev_min, hello.rev_max, ENGINE_REVISION, ENGINE_REVISION);
		return NULL;
	}
	return descriptor;
}
