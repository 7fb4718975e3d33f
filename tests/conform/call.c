/* SPDX-License-Identifier: BSD-2-Clause */
/* The slots with arguments, called as engine.h says. */
#include <string.h>

#include "tests/conform/engine.h"
#include "tests/conform/guard.h"
#include "tests/conform/trail.h"

static void judge_output(const char *slot, escrow_status status, uint64_t out)
{
	expect_as("E1", engine_is_status(status), "%s gives %d, which is no status", slot, status);
	if (status < 0)
		expect_as("E3", out == UNTOUCHED, "%s failed with %s and wrote its output", slot,
			  verdict_status(status));
	else
		expect_as("E3", out != UNTOUCHED && out, "%s gives %s and handle %#llx", slot,
			  verdict_status(status), (unsigned long long)out);
}

static void judge_error(const char *slot, escrow_status status, const struct escrow_error *error)
{
	engine_error = *error;
	trail("%s: %s %s", slot, verdict_status(status), status < 0 ? error->text : "");
	if (status >= 0)
		return;
	expect_as("E2", memchr(error->text, 0, sizeof(error->text)),
		  "the error text of %s is not terminated", slot);
	expect_as("E2", error->text[0] && error->status == status,
		  "%s gives %s, its struct escrow_error says %s \"%s\"", slot,
		  verdict_status(status), verdict_status(error->status), error->text);
}

static struct escrow_error *new_error(void)
{
	struct escrow_error *error = guard_new(sizeof(*error));

	memset(error, 0x5e, sizeof(*error));
	error->size = sizeof(*error);
	return error;
}

static uint64_t *new_output(void)
{
	uint64_t *out = guard_new(sizeof(*out));

	*out = UNTOUCHED;
	return out;
}

/* What a call wrote goes to the caller on success only. */
static escrow_status finish(const char *slot, escrow_status status, size_t mark,
			    const uint64_t *guarded, const struct escrow_error *error,
			    uint64_t *out)
{
	judge_output(slot, status, *guarded);
	if (error)
		judge_error(slot, status, error);
	else
		trail("%s: %s", slot, verdict_status(status));
	if (status >= 0)
		*out = *guarded;
	guard_poison(mark);
	return status;
}

escrow_status engine_region(struct engine *en, const struct escrow_region_args *args,
			    uint64_t *region)
{
	size_t mark = guard_mark();
	uint64_t *out = new_output();
	struct escrow_error *error = new_error();
	escrow_status status =
		en->o->register_memory(en->e, guard_copy(args, sizeof(*args)), out, error);

	return finish("register_memory", status, mark, out, error, region);
}

escrow_status engine_connect(struct engine *en, const struct escrow_peer_args *args, uint64_t *peer)
{
	size_t mark = guard_mark();
	uint64_t *out = new_output();
	struct escrow_error *error = new_error();
	struct escrow_peer_args copy = *args;
	escrow_status status;

	copy.peer_name = guard_string(args->peer_name);
	if (args->invitation)
		copy.invitation = guard_copy(args->invitation, args->invitation_len);
	status = en->o->connect(en->e, guard_copy(&copy, sizeof(copy)), out, error);
	return finish("connect", status, mark, out, error, peer);
}

escrow_status engine_grant(struct engine *en, const struct escrow_grant_args *args, uint64_t *grant)
{
	size_t mark = guard_mark();
	uint64_t *out = new_output();
	struct escrow_error *error = new_error();
	escrow_status status = en->o->grant(en->e, guard_copy(args, sizeof(*args)), out, error);

	return finish("grant", status, mark, out, error, grant);
}

escrow_status engine_import(struct engine *en, uint64_t peer, const void *buf, uint64_t len,
			    uint64_t user, uint64_t *remote)
{
	size_t mark = guard_mark();
	uint64_t *out = new_output();
	struct escrow_error *error = new_error();
	escrow_status status =
		en->o->import_grant(en->e, peer, guard_copy(buf, len), len, user, out, error);

	return finish("import_grant", status, mark, out, error, remote);
}

escrow_status engine_invite(struct engine *en, const struct escrow_invite_args *args, void *buf,
			    uint64_t *len)
{
	size_t mark = guard_mark();
	struct escrow_invite_args copy = *args;
	uint64_t *guarded_len = guard_copy(len, sizeof(*len));
	uint8_t *guarded = guard_new(*len);
	escrow_status status;

	copy.peer_name = guard_string(args->peer_name);
	status = en->o->invite(en->e, guard_copy(&copy, sizeof(copy)), guarded, guarded_len);
	trail("invite: %s, %llu bytes", verdict_status(status), (unsigned long long)*guarded_len);
	expect_as("E1", engine_is_status(status), "invite gives %d, which is no status", status);
	if (status == ESCROW_OK) {
		expect_as("O5", *guarded_len <= *len, "invite says it wrote %llu of %llu bytes",
			  (unsigned long long)*guarded_len, (unsigned long long)*len);
		memcpy(buf, guarded, *guarded_len);
	}
	*len = *guarded_len;
	guard_poison(mark);
	return status;
}

int32_t engine_transfer(struct engine *en, const struct escrow_op *op, uint32_t n, uint64_t *ids)
{
	size_t mark = guard_mark();
	uint64_t *out = guard_new(n * sizeof(*out));
	struct escrow_op *copy = n ? guard_copy(op, n * sizeof(*op)) : NULL;
	int32_t took;
	uint32_t i;

	memset(out, 0x5e, n * sizeof(*out));
	for (i = 0; i < n; i++)
		if (op[i].sge && op[i].nsge <= 64)
			copy[i].sge = guard_copy(op[i].sge, op[i].nsge * sizeof(struct escrow_sge));
	took = en->o->transfer(en->e, copy, n, sizeof(*op), 0, out);
	trail("%s: transfer of %u: %d", en->name, n, took);
	expect_as("E1", took <= (int32_t)n && (took >= 0 || engine_is_status(took)),
		  "transfer of %u ops gives %d", n, took);
	for (i = 0; i < n; i++)
		expect_as("E3",
			  (int32_t)i < took ? out[i] && out[i] != UNTOUCHED : out[i] == UNTOUCHED,
			  "transfer of %u took %d; ops[%u] is %#llx", n, took, i,
			  (unsigned long long)out[i]);
	memcpy(ids, out, (took > 0 ? (uint32_t)took : 0) * sizeof(*ids));
	guard_poison(mark);
	return took;
}
