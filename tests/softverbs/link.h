/* SPDX-License-Identifier: BSD-2-Clause */
/* One direction between two nodes: a stream socket that only its opener writes to. Lock held. */
#ifndef SOFTVERBS_LINK_H
#define SOFTVERBS_LINK_H

#include "tests/softverbs/wire.h"

#define LINK_BUFFER (4 * (WIRE_PAYLOAD_MAX + 256))

/* Our end of a link that we opened. */
struct link_out {
	int fd;
	uint16_t node;
	struct list queue;
	size_t queued;
	/* Bytes of the first packet that are out already. */
	size_t done;
};

/* Our end of a link that another node opened. */
struct link_in {
	struct list node;
	int fd;
	/* Who it is, once its first packet said so; -1 before. */
	int peer;
	size_t have;
	/* Packets are read in place; the room before the first holds the list node of struct packet. */
	_Alignas(16) uint8_t buf[LINK_BUFFER];
};

/* NULL if nobody is there. */
struct link_out *link_open(uint16_t node);
void link_close(struct link_out *l);
void link_put(struct link_out *l, struct packet *p);
/* Writes what can be written; false if the link is broken. */
bool link_flush(struct link_out *l);

struct link_in *link_accept(int listen_fd);
void link_drop(struct link_in *l);
/* Reads what is there and gives each packet to nic_receive(); false if the link ended, or carried what
 * is no packet for 'self'. */
bool link_drain(struct link_in *l, uint16_t self);

#endif
