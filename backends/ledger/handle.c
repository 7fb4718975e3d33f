/* SPDX-License-Identifier: BSD-2-Clause */
/* Slots, generations, and the pools of owners: one a kind, all in one array. */
#include "backends/ledger/ledger-int.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

uint32_t lg_owner_find(const struct ledger *l, uint64_t handle, uint32_t kind)
{
	uint32_t slot = handle_slot(handle);

	if (slot >= l->nowners || (kind && handle_kind(handle) != kind))
		return NONE;
	if (l->owners[slot].kind == 0 || l->owners[slot].kind != handle_kind(handle) ||
	    l->owners[slot].generation != handle_generation(handle))
		return NONE;
	return slot;
}

uint32_t lg_owner_take(struct ledger *l, uint32_t kind)
{
	uint32_t slot = l->free[kind];
	uint32_t generation;
	struct ledger_owner *o;

	if (slot == NONE)
		return NONE;
	o = &l->owners[slot];
	l->free[kind] = o->next;
	generation = o->generation;
	memset(o, 0, sizeof(*o));
	o->generation = handle_next_generation(generation);
	o->kind = (uint8_t)kind;
	o->parent = NONE;
	o->name = NONE;
	for (unsigned int i = 0; i < PINS; i++)
		o->pin[i] = NONE;
	return slot;
}

void lg_owner_give(struct ledger *l, uint32_t slot)
{
	struct ledger_owner *o = &l->owners[slot];
	uint32_t kind = o->kind;

	o->kind = 0;
	o->generation = handle_next_generation(o->generation);
	o->next = l->free[kind];
	l->free[kind] = slot;
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
