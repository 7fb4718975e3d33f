/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/softverbs/evq.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "tests/softverbs/turns.h"

int evq_init(struct evq *q)
{
	list_init(&q->items);
	q->fd = eventfd(0, EFD_CLOEXEC);
	return q->fd < 0 ? -errno : 0;
}

void evq_close(struct evq *q)
{
	close(q->fd);
	q->fd = -1;
}

/* The counter is 1 while there are items, else 0, and is only touched with the lock held; so neither
 * the read nor the write can block, whatever mode the program gave the descriptor. */
void evq_push(struct evq *q, struct list *item)
{
	bool first = list_empty(&q->items);

	list_append(&q->items, item);
	if (first)
		(void)!write(q->fd, &(uint64_t){1}, sizeof(uint64_t));
}

void evq_drop(struct evq *q, struct list *item)
{
	uint64_t count;

	list_remove(item);
	if (list_empty(&q->items))
		(void)!read(q->fd, &count, sizeof(count));
}

struct list *evq_wait(struct evq *q)
{
	struct list *item;
	struct pollfd pfd = {.fd = q->fd, .events = POLLIN};
	int rc;

	while (list_empty(&q->items)) {
		if (fcntl(q->fd, F_GETFL) & O_NONBLOCK) {
			errno = EAGAIN;
			return NULL;
		}
		if (turns_on()) {
			turns_wait("getting an event");
			continue;
		}
		base_unlock();
		rc = poll(&pfd, 1, -1);
		base_lock();
		if (rc < 0)
			return NULL;
	}
	item = q->items.next;
	evq_drop(q, item);
	return item;
}
