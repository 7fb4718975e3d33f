/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * packet.h - what two mock devices in different processes say to each other, over one
 * SOCK_SEQPACKET socket for each connection.  Both are of one build on one machine, so members are
 * in host order; what comes in is checked all the same.
 */
#ifndef MOCK_PACKET_H
#define MOCK_PACKET_H

#include <stdint.h>

#define PACKET_MAGIC 0x4b434f4du /* "MOCK" */
#define PACKET_VERSION 1u
#define PACKET_PAYLOAD 32768u

enum packet_kind {
	PACKET_NONE,
	PACKET_HELLO,  /* addr = rail, payload = incarnation that is meant, private data */
	PACKET_ACCEPT, /* payload = private data */
	PACKET_REJECT, /* the same */
	PACKET_WRITE,  /* rkey, addr; bytes `offset`.. of `total` */
	PACKET_READ,   /* rkey, addr, total */
	PACKET_SEND,   /* bytes `offset`.. of `total` */
	PACKET_ACK,    /* a WRITE or SEND has been executed */
	PACKET_NAK,    /* status */
	PACKET_RNR,    /* no receive: send it again */
	PACKET_DATA,   /* the answer to READ: bytes `offset`.. of `total` */
	PACKET_BYE,
};

struct packet {
	uint32_t magic;
	uint16_t version;
	uint16_t kind;
	uint32_t rkey;
	uint32_t status; /* enum native_status */
	uint64_t addr;
	uint64_t total;
	uint64_t offset;
	uint32_t payload; /* bytes behind this header */
	uint32_t reserved0;
};

#define PACKET_BYTES (sizeof(struct packet) + PACKET_PAYLOAD)

/* Sends a header and up to `count` pieces behind it.  0, EAGAIN: full, or another errno. */
struct iovec;
int packet_send(int fd, struct packet *header, const struct iovec *pieces, unsigned int count);

/* Receives one packet into room for PACKET_BYTES.  > 0: it is whole and sound; 0: there is none;
 * < 0: -errno, the socket is at its end (-ECONNRESET) or the other side talks nonsense (-EPROTO).
 */
int packet_receive(int fd, uint8_t *room);

#endif
