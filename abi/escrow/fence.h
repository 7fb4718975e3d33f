/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * escrow/fence.h - receipts from outside the process: extension "org.escrow.fence/1".
 *
 * Some proofs no library can have: that a process has been reaped and nobody holds its device
 * file, that a PCI function was reset.  Who has one (a supervisor, an operator) tells the backend
 * here, and it may release what waits for exactly that.  A wrong call is as dangerous as a wrong
 * free: callers answer for the truth of it.
 */
#ifndef ESCROW_FENCE_H
#define ESCROW_FENCE_H

#include <escrow/backend.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ESCROW_FENCE_ID "org.escrow.fence/1"

struct escrow_fence {
	uint32_t size;
	uint32_t reserved0;

	/*
	 * [ctl] NB.  receipt: ESCROW_RECEIPT_PROCESS_REAPED or ESCROW_RECEIPT_FUNCTION_FENCED for
	 * the engine with this incarnation (16 bytes, in-call).  A peer's PROCESS_REAPED ends what
	 * waits for that peer; one's own FUNCTION_FENCED ends what waits for the device, and says
	 * of one that still works that it is lost (DEVICE).  engine NULL: for the owners of
	 * released engines.  Returns OK, also if nothing waited for it.
	 * E_INVALID: another receipt.
	 */
	escrow_status (*fenced)(struct escrow_engine *engine, const uint8_t *incarnation,
				uint32_t receipt);
};

#ifdef __cplusplus
}
#endif
#endif
