/* SPDX-License-Identifier: BSD-2-Clause */
/* What travels between queue pairs, in one process or between processes. The "packet" of softverbs is
 * a fragment of a message; messages, not fragments, are numbered (psn). */
#ifndef SOFTVERBS_WIRE_H
#define SOFTVERBS_WIRE_H

#include "tests/softverbs/base.h"

#define WIRE_MAGIC 0x53565731u
#define WIRE_PAYLOAD_MAX 65536u

enum wire_kind {
	WIRE_REQUEST,
	WIRE_READ_DATA,
	WIRE_ACK,
	/* Receiver not ready; 'value' is the nanoseconds to wait. */
	WIRE_RNR,
	/* 'value' is the work completion status that the requester gets. */
	WIRE_NAK,
	/* Message 'psn' is expected, not the one that came. */
	WIRE_NAK_SEQ,
	/* Real hardware says nothing here: no such queue pair, not ready to receive, port down. The
	 * requester treats it as a loss; it only spares the test a long wait for silence. */
	WIRE_LOST,
	/* Connection manager; the payload is its own (cm_wire.h). */
	WIRE_CM,
	WIRE_KINDS,
};

struct wire_header {
	uint32_t magic;
	uint16_t kind;
	uint16_t opcode;
	uint16_t src_node;
	uint16_t dst_node;
	uint8_t src_rail;
	uint8_t dst_rail;
	uint8_t solicited;
	uint8_t pad;
	uint32_t src_qpn;
	uint32_t dst_qpn;
	uint32_t psn;
	uint32_t rkey;
	uint32_t imm;
	uint32_t size;
	/* Of the whole message, and where this fragment starts in it. */
	uint64_t length;
	uint64_t offset;
	uint64_t raddr;
	uint64_t value;
};

struct packet {
	struct list node;
	struct wire_header h;
	uint8_t payload[];
};

#endif
