/* SPDX-License-Identifier: BSD-2-Clause */
/* Slots, generations, and the pools of owners: one a kind, all in one array. */
#include "backends/ledger/ledger-int.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

uint16_t lg_step_bit(uint32_t step)
{
	static const uint8_t places[] = {
		[ESCROW_STEP_DEREGISTER] = 1,  [ESCROW_STEP_DEALLOC_WINDOW] = 2,
		[ESCROW_STEP_QP_ERR] = 3,      [ESCROW_STEP_QP_RESET] = 4,
		[ESCROW_STEP_DESTROY_QP] = 5,  [ESCROW_STEP_DESTROY_CQ] = 6,
		[LEDGER_STEP_DESTROY_CQ2] = 7, [ESCROW_STEP_DESTROY_CHANNEL] = 8,
		[ESCROW_STEP_DEALLOC_PD] = 9,  [ESCROW_STEP_CLOSE_DEVICE] = 10,
	};

	return step < sizeof(places) && places[step] ? (uint16_t)(1u << places[step]) : 0;
}

void lg_owner_take(struct ledger *l, uint32_t kind, uint32_t slot)
{
	struct ledger_owner *o = &l->owners[slot];
	uint32_t generation = o->generation;

	if (!lg_is_placed(l, kind))
		l->free[kind] = o->next;
	memset(o, 0, sizeof(*o));
	o->generation = handle_next_generation(generation);
	o->kind = (uint8_t)kind;
	o->parent = NONE;
	o->name = NONE;
	for (unsigned int i = 0; i < PINS; i++)
		o->pin[i] = NONE;
}

escrow_status lg_owner_none(const struct ledger *l, uint32_t kind, uint32_t place,
			    struct escrow_error *error)
{
	if (!lg_is_placed(l, kind))
		return lg_fail(error, ESCROW_E_LIMIT, "all %u owners of kind %u are taken",
			       l->max[kind], kind);
	return lg_fail(error, ESCROW_E_LIMIT, "place %u of the %u owners of kind %u is not free",
		       place, l->max[kind], kind);
}

escrow_status lg_fail(struct escrow_error *error, escrow_status status, const char *format, ...)
{
	va_list args;

	if (!error || error->size < sizeof(*error))
		return status;
	error->status = status;
	error->sys_errno = 0;
	error->vendor = 0;
	va_start(args, format);
	vsnprintf(error->text, sizeof(error->text), format, args);
	va_end(args);
	return status;
}
