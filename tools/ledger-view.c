/* SPDX-License-Identifier: BSD-2-Clause */
#include "config.h"

#include <inttypes.h>
#include <unistd.h>
#include <string.h>

#include "plugin/escrow.h"
#include "tools/json.h"
#include "tools/ledger-view.h"
#include "tools/names.h"

#define MAX_CHARGES 256
#define BATCH 64

/* ---- Reading ---------------------------------------------------------------------------------- */
static GArray *read_charges(const struct escrow_ledger_engine *e)
{
	GArray *all = g_array_new(FALSE, TRUE, sizeof(struct escrow_charge));
	int32_t n;

	g_array_set_size(all, MAX_CHARGES);
	if (!ESCROW_HAS(e->ops_table, charges))
		n = 0;
	else
		n = e->ops_table->charges(e->engine, (void *)all->data, MAX_CHARGES,
					  sizeof(struct escrow_charge));
	g_array_set_size(all, n < 0 ? 0 : MIN(n, MAX_CHARGES));
	return all;
}

static GArray *read_records(const struct escrow_ledger_engine *e)
{
	GArray *all = g_array_new(FALSE, TRUE, sizeof(struct escrow_record));
	struct escrow_record batch[BATCH];
	uint64_t cursor = 0;
	int32_t n;

	if (!ESCROW_HAS(e->ops_table, records))
		return all;
	memset(batch, 0, sizeof(batch));
	while ((n = e->ops_table->records(e->engine, &cursor, batch, BATCH, sizeof(batch[0]))) > 0)
		g_array_append_vals(all, batch, (guint)n);
	return all;
}

static GArray *read_withheld(uint64_t *bytes)
{
	GArray *all = g_array_new(FALSE, TRUE, sizeof(struct escrow_withheld));
	int32_t n = escrow_withheld(NULL, 0, bytes);

	g_array_set_size(all, n > 0 ? (guint)n : 0);
	n = escrow_withheld((void *)all->data, all->len, bytes);
	g_array_set_size(all, n > 0 ? MIN((guint)n, all->len) : 0);
	return all;
}

/* ---- JSON ------------------------------------------------------------------------------------- */
static void json_charges(JsonBuilder *json, const struct escrow_ledger_engine *e)
{
	g_autoptr(GArray) charges = read_charges(e);

	json_builder_set_member_name(json, "charges");
	json_builder_begin_array(json);
	for (guint i = 0; i < charges->len; i++) {
		const struct escrow_charge *c = &g_array_index(charges, struct escrow_charge, i);

		json_builder_begin_object(json);
		json_add_string(json, "kind", name_of_charge(c->kind));
		if (c->peer_name[0])
			json_add_string(json, "peer", c->peer_name);
		json_add_number(json, "used", c->used);
		json_add_number(json, "stuck", c->stuck);
		json_add_number(json, "limit", c->limit);
		json_builder_end_object(json);
	}
	json_builder_end_array(json);
}

/* Handles are told as text: JSON's numbers end where doubles do. */
static void json_add_handle(JsonBuilder *json, const char *member, uint64_t handle)
{
	g_autofree char *text = g_strdup_printf("%016" PRIx64, handle);

	json_add_string(json, member, text);
}

static void json_record(JsonBuilder *json, const struct escrow_record *r)
{
	json_builder_begin_object(json);
	json_add_handle(json, "owner", r->owner);
	json_add_handle(json, "parent", r->parent);
	json_add_string(json, "kind", name_of_owner(r->kind));
	json_add_string(json, "state", name_of_owner_state(r->state));
	json_add_string(json, "step", name_of_step(r->stage));
	json_add_number(json, "errno", (uint64_t)(r->sys_errno < 0 ? 0 : r->sys_errno));
	json_add_string(json, "receipt", name_of_receipt(r->receipt));
	json_add_handle(json, "addr", r->addr);
	json_add_number(json, "length", r->length);
	json_add_number(json, "since_ns", r->since_ns);
	json_add_number(json, "children", r->children);
	json_add_number(json, "pins", r->pins);
	json_add_string(json, "text", r->text);
	json_builder_end_object(json);
}

static void json_engine(void *ctx, const struct escrow_ledger_engine *e)
{
	g_autoptr(GArray) records = read_records(e);
	JsonBuilder *json = ctx;

	json_builder_begin_object(json);
	json_add_string(json, "backend", e->backend);
	if (e->engine) {
		json_add_string(json, "engine", e->engine_name);
		json_add_number(json, "generation", e->generation);
		json_add_string(json, "state", name_of_state(e->state));
		json_add_bool(json, "current", e->current);
		json_add_number(json, "regions", e->regions);
		json_add_number(json, "peers", e->peers);
		json_add_number(json, "grants", e->grants);
		json_add_number(json, "remotes", e->remotes);
		json_add_number(json, "ops", e->ops);
	}
	json_charges(json, e);
	json_builder_set_member_name(json, "owners");
	json_builder_begin_array(json);
	for (guint i = 0; i < records->len; i++)
		json_record(json, &g_array_index(records, struct escrow_record, i));
	json_builder_end_array(json);
	json_builder_end_object(json);
}

JsonNode *ledger_view(void)
{
	g_autoptr(JsonBuilder) json = json_builder_new();
	uint64_t bytes = 0;
	g_autoptr(GArray) withheld = read_withheld(&bytes);

	json_builder_begin_object(json);
	json_add_number(json, "pid", (uint64_t)getpid());
	json_builder_set_member_name(json, "engines");
	json_builder_begin_array(json);
	escrow_ledger(json_engine, json);
	json_builder_end_array(json);
	json_add_number(json, "withheld_bytes", bytes);
	json_builder_set_member_name(json, "withheld");
	json_builder_begin_array(json);
	for (guint i = 0; i < withheld->len; i++) {
		const struct escrow_withheld *w =
			&g_array_index(withheld, struct escrow_withheld, i);

		json_builder_begin_object(json);
		json_add_handle(json, "addr", (uint64_t)(uintptr_t)w->addr);
		json_add_number(json, "length", w->length);
		json_add_string(json, "backend", w->backend);
		json_add_string(json, "engine", w->engine_name);
		json_builder_end_object(json);
	}
	json_builder_end_array(json);
	json_builder_end_object(json);
	return json_builder_get_root(json);
}
