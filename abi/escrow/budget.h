/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * escrow/budget.h - what a whole process may have: extension "org.escrow.budget/1" of the *host*.
 *
 * How many connections and queue slots a peer takes, and when one that was lost is made anew, only
 * the backend knows; how much all backends of the process have, only the host.  So the backend asks:
 * the host's get_extension gives this table, or NULL where there are no such limits.
 */
#ifndef ESCROW_BUDGET_H
#define ESCROW_BUDGET_H

#include <escrow/backend.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ESCROW_BUDGET_ID "org.escrow.budget/1"

struct escrow_amount {
	uint32_t kind; /* ESCROW_CHARGE_SQ_SLOTS, _CQ_SLOTS, _CONNECTIONS */
	uint32_t reserved0;
	uint64_t amount;
};

/*
 * ctx is that of struct escrow_host.  Both may be called from any thread and under locks of the
 * backend; neither calls into a backend, and neither waits.
 */
struct escrow_budget {
	uint32_t size; /* at least up to take_of */
	uint32_t reserved0;

	/*
	 * NB.  Before the native object is made: all n amounts (of `stride` bytes each), or nothing
	 * and E_QUOTA.  E_UNSUPPORTED: a kind that the host does not count.  Slots are those that
	 * the queues are made with, whether anything is posted or not.
	 */
	escrow_status (*take)(void *ctx, const struct escrow_amount *amounts, uint32_t n,
			      uint32_t stride, struct escrow_error *error);

	/*
	 * NB.  What was taken and is gone: the native object was not made, or has its releasing
	 * receipt, and no other is about to be made in its place.  What is quarantined is not given
	 * back, not by release either; a receipt that comes after it still gives it back.
	 */
	void (*give)(void *ctx, const struct escrow_amount *amounts, uint32_t n, uint32_t stride);

	/*
	 * NB.  The same, of what one peer has: it is held against what the host lets that name have in
	 * the whole process, too.  peer_name (1..63 bytes, in-call): who it is charged to; "(any)" for
	 * whoever came by an ESCROW_INVITE_ANY.  What was taken of a name is given back of it.  `size`
	 * tells whether the host has them (a shorter struct has take and give alone); both or neither.
	 */
	escrow_status (*take_of)(void *ctx, const char *peer_name,
				 const struct escrow_amount *amounts, uint32_t n, uint32_t stride,
				 struct escrow_error *error);
	void (*give_of)(void *ctx, const char *peer_name, const struct escrow_amount *amounts,
			uint32_t n, uint32_t stride);
};

#ifdef __cplusplus
}
#endif
#endif
