/* SPDX-License-Identifier: BSD-2-Clause */
#include "config.h"

#include "tools/names.h"

/* Looks a number up in a table whose index is the number; holes are NULL. */
#define LOOK_UP(table, number)                                                                     \
	((number) < G_N_ELEMENTS(table) && (table)[number] ? (table)[number] : "?")

const char *name_of_state(uint32_t state)
{
	static const char *const names[] = {
		[ESCROW_STATE_OPEN] = "OPEN",         [ESCROW_STATE_QUIESCED] = "QUIESCED",
		[ESCROW_STATE_DRAINING] = "DRAINING", [ESCROW_STATE_DRAINED] = "DRAINED",
		[ESCROW_STATE_CLOSING] = "CLOSING",   [ESCROW_STATE_QUARANTINED] = "QUARANTINED",
		[ESCROW_STATE_FAILED] = "FAILED",     [ESCROW_STATE_CLOSED] = "CLOSED",
	};
	return LOOK_UP(names, state);
}

const char *name_of_event(uint16_t kind)
{
	static const char *const names[] = {
		[ESCROW_EV_OP_DONE] = "OP_DONE",
		[ESCROW_EV_OP_EXPIRED] = "OP_EXPIRED",
		[ESCROW_EV_PEER_UP] = "PEER_UP",
		[ESCROW_EV_PEER_DOWN] = "PEER_DOWN",
		[ESCROW_EV_GRANT_READY] = "GRANT_READY",
		[ESCROW_EV_GRANT_REVOKED] = "GRANT_REVOKED",
		[ESCROW_EV_REGION_RELEASED] = "REGION_RELEASED",
		[ESCROW_EV_DRAINED] = "DRAINED",
		[ESCROW_EV_QUARANTINED] = "QUARANTINED",
		[ESCROW_EV_DEVICE] = "DEVICE",
		[ESCROW_EV_CLOSED] = "CLOSED",
		[ESCROW_EV_OP_RETURNED] = "OP_RETURNED",
		[ESCROW_EV_REMOTE_READY] = "REMOTE_READY",
		[ESCROW_EV_ROOM] = "ROOM",
		[ESCROW_EV_PEER_LOST] = "PEER_LOST",
		[ESCROW_EV_MESSAGE] = "MESSAGE",
		[ESCROW_EV_MESSAGE_SENT] = "MESSAGE_SENT",
	};
	return LOOK_UP(names, kind);
}

const char *name_of_charge(uint32_t kind)
{
	static const char *const names[] = {
		[ESCROW_CHARGE_BYTES] = "bytes",
		[ESCROW_CHARGE_REGIONS] = "regions",
		[ESCROW_CHARGE_GRANTS] = "grants",
		[ESCROW_CHARGE_GRANTED_BYTES] = "granted_bytes",
		[ESCROW_CHARGE_SQ_SLOTS] = "sq_slots",
		[ESCROW_CHARGE_CQ_SLOTS] = "cq_slots",
		[ESCROW_CHARGE_CONNECTIONS] = "connections",
		[ESCROW_CHARGE_OPS] = "ops",
	};
	return LOOK_UP(names, kind);
}

const char *name_of_owner(uint32_t kind)
{
	static const char *const names[] = {
		[ESCROW_OWNER_ENGINE] = "engine", [ESCROW_OWNER_CONTEXT] = "context",
		[ESCROW_OWNER_LANE] = "lane",     [ESCROW_OWNER_CONNECTION] = "connection",
		[ESCROW_OWNER_WINDOW] = "window", [ESCROW_OWNER_REGION] = "region",
		[ESCROW_OWNER_GRANT] = "grant",   [ESCROW_OWNER_PEER] = "peer",
		[ESCROW_OWNER_LOAN] = "loan",     [ESCROW_OWNER_CONTROL] = "control",
	};
	return LOOK_UP(names, kind);
}

const char *name_of_owner_state(uint32_t state)
{
	static const char *const names[] = {
		[ESCROW_OWNER_LIVE] = "live",
		[ESCROW_OWNER_RETIRING] = "retiring",
		[ESCROW_OWNER_GONE] = "gone",
		[ESCROW_OWNER_QUARANTINED] = "quarantined",
	};
	return LOOK_UP(names, state);
}

const char *name_of_step(uint32_t step)
{
	static const char *const names[] = {
		[ESCROW_STEP_NONE] = "none",
		[ESCROW_STEP_REGISTER] = "register",
		[ESCROW_STEP_DEREGISTER] = "deregister",
		[ESCROW_STEP_ALLOC_WINDOW] = "alloc_window",
		[ESCROW_STEP_BIND_WINDOW] = "bind_window",
		[ESCROW_STEP_INVALIDATE] = "invalidate",
		[ESCROW_STEP_DEALLOC_WINDOW] = "dealloc_window",
		[ESCROW_STEP_CREATE_QP] = "create_qp",
		[ESCROW_STEP_QP_ERR] = "qp_err",
		[ESCROW_STEP_QP_RESET] = "qp_reset",
		[ESCROW_STEP_DESTROY_QP] = "destroy_qp",
		[ESCROW_STEP_CREATE_CQ] = "create_cq",
		[ESCROW_STEP_DESTROY_CQ] = "destroy_cq",
		[ESCROW_STEP_CREATE_CHANNEL] = "create_channel",
		[ESCROW_STEP_DESTROY_CHANNEL] = "destroy_channel",
		[ESCROW_STEP_ALLOC_PD] = "alloc_pd",
		[ESCROW_STEP_DEALLOC_PD] = "dealloc_pd",
		[ESCROW_STEP_OPEN_DEVICE] = "open_device",
		[ESCROW_STEP_CLOSE_DEVICE] = "close_device",
		[ESCROW_STEP_POST] = "post",
		[ESCROW_STEP_POLL] = "poll",
	};
	return LOOK_UP(names, step);
}

const char *name_of_receipt(uint32_t receipt)
{
	static const char *const names[] = {
		[ESCROW_RECEIPT_NONE] = "none",
		[ESCROW_RECEIPT_CQE_OK] = "cqe_ok",
		[ESCROW_RECEIPT_CQE_ERROR] = "cqe_error",
		[ESCROW_RECEIPT_CQE_COVERED] = "cqe_covered",
		[ESCROW_RECEIPT_WINDOW_INVALIDATED] = "window_invalidated",
		[ESCROW_RECEIPT_QP_RESET] = "qp_reset",
		[ESCROW_RECEIPT_WINDOW_FREED] = "window_freed",
		[ESCROW_RECEIPT_DEREGISTERED] = "deregistered",
		[ESCROW_RECEIPT_CQ_DESTROYED] = "cq_destroyed",
		[ESCROW_RECEIPT_QP_ERR] = "qp_err",
		[ESCROW_RECEIPT_QP_DESTROYED] = "qp_destroyed",
		[ESCROW_RECEIPT_PD_GONE] = "pd_gone",
		[ESCROW_RECEIPT_CHANNEL_GONE] = "channel_gone",
		[ESCROW_RECEIPT_PROCESS_REAPED] = "process_reaped",
		[ESCROW_RECEIPT_FUNCTION_FENCED] = "function_fenced",
	};
	return LOOK_UP(names, receipt);
}

/* The words of the bits that are set; a bit without a word is told by its number. */
static char **words_of_bits(uint64_t bits, const char *const *words, unsigned int nwords)
{
	GPtrArray *out = g_ptr_array_new();

	for (unsigned int i = 0; i < 64; i++) {
		if (!(bits & (UINT64_C(1) << i)))
			continue;
		g_ptr_array_add(out, i < nwords && words[i] ? g_strdup(words[i])
							    : g_strdup_printf("bit-%u", i));
	}
	g_ptr_array_add(out, NULL);
	return (char **)g_ptr_array_free(out, FALSE);
}

char **names_of_caps(uint64_t caps)
{
	static const char *const words[] = {"read",        "write",   "event-fd", "ledger",
					    "transfer-mt", "threads", "remote",   "loopback",
					    "invite-any",  "offer",   "dmabuf",   "weak",
					    "plain-keys"};

	return words_of_bits(caps, words, G_N_ELEMENTS(words));
}

char **names_of_memory_kinds(uint64_t kinds)
{
	static const char *const words[] = {NULL, "host", "dmabuf"};

	return words_of_bits(kinds, words, G_N_ELEMENTS(words));
}

void names_add_json(JsonBuilder *json, const char *member, char *const *words)
{
	json_builder_set_member_name(json, member);
	json_builder_begin_array(json);
	for (; *words; words++)
		json_builder_add_string_value(json, *words);
	json_builder_end_array(json);
}
