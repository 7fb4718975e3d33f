/* SPDX-License-Identifier: BSD-2-Clause */
/* news.c - what a device has to tell: a queue of notes that live in the objects they are about. */
#include "backends/mock/mock.h"

#include <unistd.h>

void news_tell(struct native *n, struct mock_news *news)
{
	uint64_t one = 1;

	if (news->queued)
		return;
	news->queued = true;
	news->next = NULL;
	if (n->news_last)
		n->news_last->next = news;
	else
		n->news_first = news;
	n->news_last = news;
	atomic_fetch_add(&n->nnews, 1);
	/* An eventfd can refuse only when it is full, and then it is readable anyway. */
	(void)!write(n->wake_fd, &one, sizeof(one));
}

void news_forget(struct native *n, struct mock_news *news)
{
	struct mock_news **p = &n->news_first, *before = NULL;

	if (!news->queued)
		return;
	while (*p != news) {
		before = *p;
		p = &(*p)->next;
	}
	*p = news->next;
	if (n->news_last == news)
		n->news_last = before;
	news->queued = false;
	atomic_fetch_sub(&n->nnews, 1);
}

void news_of_conn(struct native_conn *c, enum mock_conn_news which, enum native_event_kind kind,
		  int error)
{
	struct native_event *event = &c->news[which].event;

	if (c->news[which].queued)
		return;
	event->kind = kind;
	event->error = error;
	event->rail = c->rail;
	event->context = c->context->index;
	event->conn = c;
	news_tell(c->native, &c->news[which]);
}

int mock_next_event(struct native *n, struct native_event *event)
{
	struct mock_news *news;
	uint64_t wakes;

	socket_look(n);
	if (atomic_load(&n->nnews) == 0)
		return 0;
	fabric_lock();
	news = n->news_first;
	if (news) {
		*event = news->event;
		news_forget(n, news);
	}
	if (!n->news_first)
		(void)!read(n->wake_fd, &wakes, sizeof(wakes));
	fabric_unlock();
	return news != NULL;
}

int mock_event_fd(struct native *n)
{
	return n->epoll_fd;
}
