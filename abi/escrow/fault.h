/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * escrow/fault.h - planned faults, for tests only: extension "org.escrow.test-fault/1".
 *
 * A backend that offers it can be driven through the fault profile of the conformance suite; it
 * must not be offered unless the configuration asks for it (key "test.faults" = "1").
 *
 * A plan is a text of items separated by ';'.  Each item is one of:
 *
 *   STEP[@N]=VERDICT[:ERRNO]   the N-th call (from now; default every call) of a native step ends so.
 *       STEP     register deregister alloc_window bind_window invalidate dealloc_window create_qp
 *                qp_err qp_reset destroy_qp create_cq destroy_cq create_channel destroy_channel
 *                alloc_pd dealloc_pd open_device close_device post
 *       VERDICT  ok      as usual
 *                lie     answers 0 and does nothing
 *                refused answers ERRNO (default EBUSY), nothing happened
 *                fail    answers ERRNO (default EIO), nothing happened
 *                effect  answers ERRNO (default EIO), but it happened
 *   cqe=VERDICT[:COUNT]        the next COUNT completions (default all from now on):
 *       hold (kept back, and the device goes on touching the bytes), drop (never comes), dup (comes
 *       twice), stale (comes again later with an old identity), release (what was held, and no more)
 *   nic=hold | run             the device stops before its next access to memory, or goes on
 *   peer=kill                  every peer's engine dies without a word
 *   device=fatal               the device is lost
 *   import=drop                answers to imports of offers never come
 *   clear                      forget all of the above
 */
#ifndef ESCROW_FAULT_H
#define ESCROW_FAULT_H

#include <escrow/backend.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ESCROW_FAULT_ID "org.escrow.test-fault/1"

struct escrow_fault {
	uint32_t size;
	uint32_t reserved0;

	/* [ctl] NB.  plan in-call.  E_INVALID names the item that is not understood; no item of
	 * that plan is then in force. */
	escrow_status (*plan)(struct escrow_engine *engine, const char *plan,
			      struct escrow_error *error);

	/* [ctl] NB.  How often a native step (ESCROW_STEP_*) was called on this engine. */
	int64_t (*calls)(struct escrow_engine *engine, uint32_t step);
};

#ifdef __cplusplus
}
#endif
#endif
