/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Charges: of the engine and of each peer *name*, so that a peer which comes back in ever new
 * incarnations keeps one account.
 *
 * Owners carry what they were charged with.  SQ and CQ slots and ops are counted where the data
 * path moves them, by connection and lane, and added up when somebody asks.  A connection is only
 * taken if its whole queues fit into the limits, so slots in use need no check of their own.
 */
#include "backends/ledger/ledger-int.h"

#include <stdio.h>
#include <string.h>

/* While the lane goes on: what was read first is the older, so it is never more than there was. */
static uint32_t count_debts(const struct ledger_conn *c)
{
	uint32_t tail = __atomic_load_n(&c->tail, __ATOMIC_ACQUIRE);

	return tail - __atomic_load_n(&c->head, __ATOMIC_ACQUIRE);
}

/* Those that are their own parents. */
static uint32_t count_alone(const struct ledger_conn *c)
{
	int32_t n = (int32_t)(count_debts(c) - GET(c->parts));

	return n > 0 ? (uint32_t)n : 0;
}

static uint32_t count_ops(const struct ledger *l, uint32_t name)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < l->config.max_connections; i++) {
		const struct ledger_owner *o = &l->owners[l->base[ESCROW_OWNER_CONNECTION] + i];

		if (o->kind && (name == NONE || o->name == name))
			n += count_alone(&l->conns[i]);
	}
	for (uint32_t i = 0; i < l->nops; i++) {
		if (GET(l->ops[i].taken) && (name == NONE || GET(l->ops[i].name) == name))
			n++;
	}
	return n;
}

/* Ops outlive the connection they were posted on, and so must the name they count for. */
static bool name_is_free(const struct ledger *l, uint32_t i)
{
	return l->names[i].refs == 0 && (!l->names[i].name[0] || count_ops(l, i) == 0);
}

/* Finds the name; makes it with `make`; without, says by non-NULL whether there is room for it. */
struct ledger_name *lg_name_get(struct ledger *l, const char *name, bool make)
{
	struct ledger_name *room = NULL;

	for (uint32_t i = 0; i < l->config.max_names; i++) {
		struct ledger_name *n = &l->names[i];

		if (n->refs && strcmp(n->name, name) == 0) {
			if (make)
				n->refs++;
			return n;
		}
		if (!room && name_is_free(l, i))
			room = n;
	}
	if (room && make) {
		memset(room, 0, sizeof(*room));
		snprintf(room->name, sizeof(room->name), "%s", name);
		room->refs = 1;
	}
	return room;
}

/* A name's accounts hold all its charges: with the last of them it is empty. */
void lg_name_put(struct ledger *l, uint32_t name)
{
	l->names[name].refs--;
}

static uint64_t limit_of(const struct ledger *l, uint32_t name, uint32_t kind)
{
	uint64_t limit = name == NONE ? l->config.limit[kind] : l->config.name_limit[kind];

	return limit ? limit : LEDGER_NO_LIMIT;
}

/* conn_used(), by one who does not hold the lane. */
static uint32_t count_used(const struct ledger_conn *c)
{
	int32_t n = (int32_t)(count_debts(c) - GET(c->sentinel));

	return (n > 0 ? (uint32_t)n : 0) + GET(c->planned);
}

static void sum_connections(const struct ledger *l, uint32_t name, uint32_t kind,
			    struct escrow_charge *out)
{
	for (uint32_t i = 0; i < l->config.max_connections; i++) {
		const struct ledger_owner *o = &l->owners[l->base[ESCROW_OWNER_CONNECTION] + i];
		const struct ledger_conn *c = &l->conns[i];
		uint64_t n;

		if (!o->kind || (name != NONE && o->name != name))
			continue;
		n = 1u + count_used(c) + GET(c->kept); /* 1: the sentinel's */
		if (kind == ESCROW_CHARGE_CQ_SLOTS)
			n += c->rq_depth;
		out->used += n;
		if (o->stuck)
			out->stuck += n;
	}
}

static void sum_ops(const struct ledger *l, uint32_t name, struct escrow_charge *out)
{
	int64_t stuck = 0;

	for (uint32_t i = 0; i < l->config.max_lanes; i++)
		stuck += (int64_t)GET(l->lanes[i].ops_stuck);
	out->used = count_ops(l, name);
	if (name == NONE && stuck > 0)
		out->stuck = (uint64_t)stuck;
}

void lg_charge_sum(struct ledger *l, uint32_t name, uint32_t kind, struct escrow_charge *out)
{
	const struct ledger_name *n = name == NONE ? lg_totals(l) : &l->names[name];

	memset(out, 0, sizeof(*out));
	out->kind = kind;
	out->limit = limit_of(l, name, kind);
	memcpy(out->peer_name, n->name, sizeof(out->peer_name));
	if (kind == ESCROW_CHARGE_SQ_SLOTS || kind == ESCROW_CHARGE_CQ_SLOTS) {
		sum_connections(l, name, kind, out);
	} else if (kind == ESCROW_CHARGE_OPS) {
		sum_ops(l, name, out);
		if (out->limit > l->nops)
			out->limit = l->nops;
	} else {
		out->used = n->used[kind];
		out->stuck = n->stuck[kind];
	}
}

/* Slots that the connections of a name (or all) may come to use. */
static uint64_t committed(const struct ledger *l, uint32_t name, uint32_t kind)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < l->config.max_connections; i++) {
		const struct ledger_owner *o = &l->owners[l->base[ESCROW_OWNER_CONNECTION] + i];

		if (!o->kind || (name != NONE && o->name != name))
			continue;
		n += l->conns[i].sq_depth;
		if (kind == ESCROW_CHARGE_CQ_SLOTS)
			n += l->conns[i].rq_depth;
	}
	return n;
}

/* As the settings name them: quota.WORD. */
static const char *kind_word(uint32_t kind)
{
	static const char *const words[] = {
		[ESCROW_CHARGE_BYTES] = "bytes",
		[ESCROW_CHARGE_REGIONS] = "regions",
		[ESCROW_CHARGE_GRANTS] = "grants",
		[ESCROW_CHARGE_GRANTED_BYTES] = "granted_bytes",
		[ESCROW_CHARGE_SQ_SLOTS] = "sq_slots",
		[ESCROW_CHARGE_CQ_SLOTS] = "cq_slots",
		[ESCROW_CHARGE_CONNECTIONS] = "connections",
		[ESCROW_CHARGE_OPS] = "ops",
	};

	return kind < sizeof(words) / sizeof(words[0]) && words[kind] ? words[kind] : "?";
}

/* A charge as the host counts it. */
static unsigned long long hosts(const struct ledger *l, uint32_t kind, uint64_t n)
{
	uint64_t devices = kind <= ESCROW_CHARGE_GRANTED_BYTES ? l->config.devices : 1;

	return devices > 1 ? n / devices + (n % devices != 0) : n;
}

static escrow_status check_one(struct ledger *l, uint32_t name, uint32_t kind, uint64_t amount,
			       struct escrow_error *error)
{
	const char *whose = name == NONE ? "the engine" : l->names[name].name;
	struct escrow_charge c;
	uint64_t used;

	lg_charge_sum(l, name, kind, &c);
	used = c.used;
	if (kind == ESCROW_CHARGE_SQ_SLOTS || kind == ESCROW_CHARGE_CQ_SLOTS)
		used = committed(l, name, kind);
	if (c.stuck && (double)c.stuck * 100.0 >= (double)c.limit * l->config.stuck_percent)
		return lg_fail(error, ESCROW_E_QUOTA,
			       "%s of %s: %llu of %llu are stuck in quarantine, which "
			       "reaches the share of %u %%",
			       kind_word(kind), whose, hosts(l, kind, c.stuck),
			       hosts(l, kind, c.limit), l->config.stuck_percent);
	if (used > c.limit || amount > c.limit - used)
		return lg_fail(error, ESCROW_E_QUOTA,
			       "%s of %s: %llu more than the %llu in use exceed %llu",
			       kind_word(kind), whose, (unsigned long long)amount,
			       hosts(l, kind, used), hosts(l, kind, c.limit));
	return ESCROW_OK;
}

escrow_status lg_charge_limits(struct ledger *l, uint32_t name, uint32_t kind, uint64_t amount,
			       struct escrow_error *error)
{
	escrow_status status = ESCROW_OK;

	if (limit_of(l, NONE, kind) != LEDGER_NO_LIMIT)
		status = check_one(l, NONE, kind, amount, error);
	if (!status && name != NONE && limit_of(l, name, kind) != LEDGER_NO_LIMIT)
		status = check_one(l, name, kind, amount, error);
	return status;
}

void lg_charge_stick(struct ledger *l, uint32_t slot, bool stuck)
{
	struct ledger_owner *o = &l->owners[slot];

	for (unsigned int i = 0; i < 2; i++) {
		uint64_t amount, more;

		if (!o->charge[i])
			continue;
		amount = lg_charge_amount(l, slot, i);
		more = stuck ? amount : 0 - amount;
		lg_totals(l)->stuck[o->charge[i]] += more;
		if (o->name != NONE)
			l->names[o->name].stuck[o->charge[i]] += more;
		log_ctl(l, LOG_CODE(stuck ? LEDGER_LOG_STUCK : LEDGER_LOG_UNSTUCK, o->charge[i]),
			lg_owner_handle(l, slot), amount);
	}
}
