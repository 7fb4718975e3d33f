/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include <string.h>

#include <glib.h>

#include "plugin/error.h"
#include "abi/revision1.h"
#include "plugin/negotiate.h"
#include "plugin/services.h"

#define NEGOTIATE_REV_MIN 1u
#define NEGOTIATE_MAX_OPTIONS 1024u

/* The slots in their order, and which may be absent under which capability. */
struct negotiate_slot {
	const char *name;
	uint32_t offset;
	uint32_t optional;
	uint64_t cap; /* that promises an optional one */
};

#define SLOT(m)                                                                                    \
	{                                                                                          \
#m, offsetof(struct escrow_ops, m), 0, 0                                           \
	}
#define OPTIONAL(m, cap)                                                                           \
	{                                                                                          \
#m, offsetof(struct escrow_ops, m), 1, cap                                         \
	}

static const struct negotiate_slot slots[] = {
	SLOT(release),
	SLOT(open),
	SLOT(query),
	SLOT(register_memory),
	SLOT(deregister_memory),
	SLOT(invite),
	SLOT(connect),
	SLOT(disconnect),
	SLOT(peer_info),
	SLOT(grant),
	SLOT(export_grant),
	SLOT(revoke),
	SLOT(import_grant),
	SLOT(forget_grant),
	SLOT(transfer),
	SLOT(cancel),
	SLOT(poll),
	OPTIONAL(event_fd, ESCROW_CAP_EVENT_FD),
	OPTIONAL(arm, ESCROW_CAP_EVENT_FD),
	SLOT(quiesce),
	SLOT(resume),
	SLOT(drain),
	SLOT(close),
	OPTIONAL(charges, ESCROW_CAP_LEDGER),
	OPTIONAL(records, ESCROW_CAP_LEDGER),
	OPTIONAL(get_extension, 0),
};

/*
 * A slot added to the table without a line above would never be checked. The version matrix builds
 * this file with a generated later header, whose slot it rightly does not know.
 */
#ifndef ESCROW_E_FUTURE
_Static_assert(sizeof(struct escrow_ops) == 8 + sizeof(slots) / sizeof(slots[0]) * sizeof(void *),
	       "every slot of struct escrow_ops is listed");
#endif

static int32_t stub_event_fd(struct escrow_engine *engine)
{
	return ESCROW_E_UNSUPPORTED;
}

static escrow_status stub_arm(struct escrow_engine *engine, uint32_t flags)
{
	return ESCROW_E_UNSUPPORTED;
}

static int32_t stub_charges(struct escrow_engine *engine, struct escrow_charge *charges,
			    uint32_t max, uint32_t stride)
{
	return ESCROW_E_UNSUPPORTED;
}

static int32_t stub_records(struct escrow_engine *engine, uint64_t *cursor,
			    struct escrow_record *records, uint32_t max, uint32_t stride)
{
	return ESCROW_E_UNSUPPORTED;
}

static const void *stub_get_extension(struct escrow_engine *engine, const char *id)
{
	return NULL;
}

static escrow_status negotiate_table(const struct escrow_backend *backend, struct escrow_ops *ops,
				     struct escrow_error *error)
{
	const struct escrow_ops *theirs = backend->ops;
	struct escrow_ops copy = {0};

	if (!theirs || theirs->size < offsetof(struct escrow_ops, open))
		return error_set(error, ESCROW_E_INVALID, "%s: the table is missing or has no slot",
				 backend->id);
	memcpy(&copy, theirs, MIN(theirs->size, sizeof(copy)));
	for (size_t i = 0; i < G_N_ELEMENTS(slots); i++) {
		void *slot;

		memcpy(&slot, (const char *)&copy + slots[i].offset, sizeof(slot));
		if (slot)
			continue;
		if (!slots[i].optional)
			return error_set(error, ESCROW_E_INVALID,
					 "%s: the mandatory slot %s is NULL", backend->id,
					 slots[i].name);
		if (backend->caps & slots[i].cap)
			return error_set(
				error, ESCROW_E_INVALID,
				"%s: the slot %s is NULL, but its capability 0x%" G_GINT64_MODIFIER
				"x is advertised",
				backend->id, slots[i].name, slots[i].cap);
	}
	copy.size = sizeof(copy);
	if (!copy.event_fd)
		copy.event_fd = stub_event_fd;
	if (!copy.arm)
		copy.arm = stub_arm;
	if (!copy.charges)
		copy.charges = stub_charges;
	if (!copy.records)
		copy.records = stub_records;
	if (!copy.get_extension)
		copy.get_extension = stub_get_extension;
	*ops = copy;
	return ESCROW_OK;
}

static gboolean negotiate_id_is_valid(const char *id)
{
	size_t n = id ? strnlen(id, 33) : 0;

	if (n < 1 || n > 32 || !g_ascii_islower(id[0]))
		return FALSE;
	for (size_t i = 0; i < n; i++) {
		if (!g_ascii_islower(id[i]) && !g_ascii_isdigit(id[i]) && id[i] != '-')
			return FALSE;
	}
	return TRUE;
}

static escrow_status negotiate_options(const struct escrow_backend *b, struct escrow_error *error)
{
	if (b->noptions == 0)
		return ESCROW_OK;
	if (!b->options || b->noptions > NEGOTIATE_MAX_OPTIONS || b->options_stride % 8 != 0 ||
	    b->options_stride < ABI_R1(escrow_option))
		return error_set(error, ESCROW_E_INVALID,
				 "%s: %u options with stride %u; allowed are %u, a multiple of 8 "
				 "from %zu on",
				 b->id, b->noptions, b->options_stride, NEGOTIATE_MAX_OPTIONS,
				 ABI_R1(escrow_option));
	for (uint32_t i = 0; i < b->noptions; i++) {
		const struct escrow_option *o =
			(const void *)((const char *)b->options + (size_t)i * b->options_stride);

		if (!o->key || !o->value || !o->help)
			return error_set(error, ESCROW_E_INVALID,
					 "%s: option %u lacks its key, value or help", b->id, i);
	}
	return ESCROW_OK;
}

static escrow_status negotiate_descriptor(const struct escrow_backend *b,
					  struct escrow_error *error)
{
	if (b->size < ABI_R1(escrow_backend))
		return error_set(error, ESCROW_E_INVALID,
				 "the descriptor has %u bytes, that of revision 1 has %zu", b->size,
				 ABI_R1(escrow_backend));
	if (b->revision < NEGOTIATE_REV_MIN || b->revision > ESCROW_REVISION)
		return error_set(error, ESCROW_E_REVISION,
				 "the backend chose revision %u; asked for was %u..%u", b->revision,
				 NEGOTIATE_REV_MIN, ESCROW_REVISION);
	if (!negotiate_id_is_valid(b->id))
		return error_set(error, ESCROW_E_INVALID,
				 "the backend's id is missing or not [a-z][a-z0-9-]{0,31}");
	if (!b->version || strnlen(b->version, 64) > 63 || !g_utf8_validate(b->version, -1, NULL))
		return error_set(error, ESCROW_E_INVALID,
				 "%s: the version is missing, longer than 63 bytes or not UTF-8",
				 b->id);
	if (b->residency > ESCROW_RESIDENCY_MAY_UNMAP)
		return error_set(error, ESCROW_E_INVALID,
				 "%s: residency %" G_GUINT64_FORMAT " is not 0 or 1", b->id,
				 b->residency);
	return negotiate_options(b, error);
}

escrow_status negotiate(escrow_entry_fn entry, const struct escrow_backend **backend,
			struct escrow_ops *ops, struct escrow_error *error)
{
	struct escrow_hello hello = {.size = sizeof(hello),
				     .rev_min = NEGOTIATE_REV_MIN,
				     .rev_max = ESCROW_REVISION,
				     .host = services_plain(),
				     .host_name = "libescrow",
				     .host_version = PACKAGE_VERSION};
	struct escrow_error theirs;
	const struct escrow_backend *found;
	escrow_status status;

	error_clear(&theirs);
	found = entry(&hello, &theirs);
	error_close(&theirs);
	if (!found)
		return error_set(error, theirs.status < 0 ? theirs.status : ESCROW_E_INVALID,
				 "the entry refused revisions %u..%u: %.150s", hello.rev_min,
				 hello.rev_max, theirs.text[0] ? theirs.text : "no reason given");
	status = negotiate_descriptor(found, error);
	if (status == ESCROW_OK)
		status = negotiate_table(found, ops, error);
	if (status == ESCROW_OK)
		*backend = found;
	return status;
}
