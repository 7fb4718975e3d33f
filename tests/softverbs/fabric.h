/* SPDX-License-Identifier: BSD-2-Clause */
/* Nodes and the links between them: processes that share SOFTVERBS_DIR. */
#ifndef SOFTVERBS_FABRIC_H
#define SOFTVERBS_FABRIC_H

#include "tests/softverbs/wire.h"

struct pollfd;

/* A queue pair number is node:10, index:14. */
#define FABRIC_NODES 1024
#define FABRIC_QPN_BITS 14

/* All below: lock held. */

/* Makes this process a node. Called by nic_start(). */
void fabric_start(void);
/* Ends being one. */
void fabric_stop(void);
/* This process's number. */
uint16_t fabric_node(void);
/* A packet to fill in, with room for 'size' bytes of payload; NULL without memory. */
struct packet *fabric_packet(size_t size);
/* Sends and consumes it. Returns false if it is known that nobody will get it. */
bool fabric_send(struct packet *p);
/* Sends a packet that was sent before, whoever it was from. */
void fabric_repeat(struct packet *p);
/* Whether more may be put on the way to 'node' now. If not, fabric_wants_run() turns true when it
 * may. */
bool fabric_room(uint16_t node);
/* Takes the next packet that arrived from this process itself, or NULL. The caller frees it with
 * fabric_free(). */
struct packet *fabric_local(void);
void fabric_free(struct packet *p);
/* The same, but of what arrived the 'nth' packet, or an earlier one of the same flow (two queue pairs and a
 * direction, or a connection manager): flows overtake each other, packets of one do not. Its number is
 * below fabric_arrived(). */
struct packet *fabric_local_nth(uint32_t nth);
uint32_t fabric_arrived(void);
/* Whether there is such a packet. */
bool fabric_pending(void);
/* In the child of a fork(): forget the parent's node. */
void fabric_forked(void);
/* Whether links have room again since the last call. */
bool fabric_wants_run(void);
/* Adds the links' descriptors to 'fds'; returns how many. */
size_t fabric_poll(struct pollfd *fds, size_t max);
/* Reads and writes what poll() found ready. Calls nic_receive() and nic_node_gone(). */
void fabric_serve(const struct pollfd *fds, size_t count);

/* Given by nic.c. */
void nic_receive(const struct packet *p);
void nic_node_gone(uint16_t node);

#endif
