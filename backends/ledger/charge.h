/* SPDX-License-Identifier: BSD-2-Clause */
/* charge.h - what an owner is charged with, taken and returned; included by ledger-int.h.  All ctl. */
#ifndef LEDGER_CHARGE_H
#define LEDGER_CHARGE_H

/* The engine's own account. */
static inline struct ledger_name *lg_totals(const struct ledger *l)
{
	return &l->names[l->config.max_names];
}

static inline uint64_t lg_charge_amount(const struct ledger *l, uint32_t slot, uint32_t nth)
{
	return nth ? l->spans[slot].length : 1;
}

static inline void lg_count(struct ledger *l, uint32_t name, uint32_t kind, uint64_t more)
{
	lg_totals(l)->used[kind] += more;
	if (name != NONE)
		l->names[name].used[kind] += more;
}

/* One of a kind; with the second kind, as many as its span is long. */
static inline void lg_charge_take(struct ledger *l, uint32_t slot, uint32_t kind, uint32_t second)
{
	struct ledger_owner *o = &l->owners[slot];

	o->charge[0] = (uint8_t)kind;
	o->charge[1] = (uint8_t)second;
	lg_count(l, o->name, kind, 1);
	log_ctl(l, LOG_CODE(LEDGER_LOG_CHARGE, kind), lg_owner_handle(l, slot), 1);
	if (!second)
		return;
	lg_count(l, o->name, second, l->spans[slot].length);
	log_ctl(l, LOG_CODE(LEDGER_LOG_CHARGE, second), lg_owner_handle(l, slot),
		l->spans[slot].length);
}

static inline void lg_charge_return(struct ledger *l, uint32_t slot)
{
	struct ledger_owner *o = &l->owners[slot];

	for (unsigned int i = 0; i < 2; i++) {
		uint32_t kind = o->charge[i];
		uint64_t amount;

		if (!kind)
			return;
		amount = lg_charge_amount(l, slot, i);
		lg_count(l, o->name, kind, 0 - amount);
		o->charge[i] = 0;
		log_ctl(l, LOG_CODE(LEDGER_LOG_UNCHARGE, kind), lg_owner_handle(l, slot), amount);
	}
}

#endif
