/* SPDX-License-Identifier: BSD-2-Clause */
/* log.h - one ring of the log, and how a field is written that another thread reads. */
#ifndef LEDGER_LOG_H
#define LEDGER_LOG_H

#include "backends/ledger/ledger.h"

/* Relaxed: what is read may be a moment old, it is never torn. */
#define PUT(lvalue, value) __atomic_store_n(&(lvalue), (value), __ATOMIC_RELAXED)
#define GET(lvalue) __atomic_load_n(&(lvalue), __ATOMIC_RELAXED)

struct ledger_log {
	struct ledger_log_entry *entries; /* NULL: no log */
	uint64_t head;                    /* entries ever written */
	uint64_t mask;
};

static inline void log_put(struct ledger_log *log, uint32_t control, uint32_t what_code,
			   uint64_t subject, uint64_t value)
{
	struct ledger_log_entry *e;
	uint64_t head;

	if (!log->entries)
		return;
	head = log->head;
	e = &log->entries[head & log->mask];
	e->control = control;
	e->what = (uint16_t)(what_code >> 16);
	e->code = (uint16_t)what_code;
	e->subject = subject;
	e->value = value;
	PUT(log->head, head + 1);
}
#define LOG_CODE(what, code) ((uint32_t)(what) << 16 | ((uint32_t)(code)&0xffff))

#endif
