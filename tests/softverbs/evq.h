/* SPDX-License-Identifier: BSD-2-Clause */
/* A queue of events behind a file descriptor that is readable exactly while the queue is not empty:
 * completion channels, asynchronous events, connection manager events. */
#ifndef SOFTVERBS_EVQ_H
#define SOFTVERBS_EVQ_H

#include "tests/softverbs/base.h"

struct evq {
	int fd;
	struct list items;
};

/* Returns 0 or -errno. */
int evq_init(struct evq *q);
/* Closes the descriptor. The caller has emptied the queue. */
void evq_close(struct evq *q);
/* All below: lock held. */
void evq_push(struct evq *q, struct list *item);
/* Takes an item out of the queue, wherever it stands. */
void evq_drop(struct evq *q, struct list *item);
/* The oldest item, taken out. If there is none it waits without the lock, or returns NULL with errno
 * EAGAIN if the program made the descriptor non-blocking, or EINTR. */
struct list *evq_wait(struct evq *q);

#endif
