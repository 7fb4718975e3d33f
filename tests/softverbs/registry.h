/* SPDX-License-Identifier: BSD-2-Clause */
/* What the processes of one fabric agree on, as files in SOFTVERBS_DIR: who is which node, and who
 * listens where. Lock held. */
#ifndef SOFTVERBS_REGISTRY_H
#define SOFTVERBS_REGISTRY_H

#include <sys/un.h>

#include "tests/softverbs/base.h"

/* Becomes the lowest node that nobody is; it stays so while '*lock_fd' is open. Returns the number, or
 * -1 if the folder cannot be used (said on stderr). */
int registry_claim(int *lock_fd);
/* A number that is then nobody's, for 2^14 more indices of keys (mr.c); it stays so with the process. Or
 * -1. */
int registry_claim_block(void);
/* In the child of a fork(): none is ours. */
void registry_forked(void);
/* The address of a node's socket. */
void registry_address(uint16_t node, struct sockaddr_un *un);

/* An address here is IPv6; IPv4 is mapped, and all zeros is any. */

/* Records that 'node' listens; '*port' 0 is replaced by a free one. Returns 0 or EADDRINUSE. */
int registry_listen(const struct in6_addr *addr, uint16_t *port, uint16_t node);
void registry_unlisten(const struct in6_addr *addr, uint16_t port);
/* Finds who listens at the address, or at any address. Returns the node or -1. */
int registry_find(const struct in6_addr *addr, uint16_t port);

#endif
