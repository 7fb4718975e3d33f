/* SPDX-License-Identifier: BSD-2-Clause */
/* fabric.c - what the mock devices of one process share: a lock, a list, serial numbers. */
#include "backends/mock/mock.h"

#include <string.h>

/*
 * The one state of this object that is not an engine's: the wire on which the engines of a process
 * meet.  It holds nothing that outlives them.
 */
static struct {
	pthread_mutex_t lock;
	struct native *natives;
	uint64_t serial;
} fabric = {.lock = PTHREAD_MUTEX_INITIALIZER};

void fabric_lock(void)
{
	pthread_mutex_lock(&fabric.lock);
}

bool fabric_trylock(void)
{
	return pthread_mutex_trylock(&fabric.lock) == 0;
}

void fabric_unlock(void)
{
	pthread_mutex_unlock(&fabric.lock);
}

uint64_t fabric_serial(void)
{
	return ++fabric.serial;
}

void fabric_add(struct native *n)
{
	fabric_lock();
	n->next = fabric.natives;
	fabric.natives = n;
	fabric_unlock();
}

void fabric_remove(struct native *n)
{
	fabric_lock();
	for (struct native **p = &fabric.natives; *p; p = &(*p)->next) {
		if (*p != n)
			continue;
		*p = n->next;
		break;
	}
	fabric_unlock();
}

struct native *fabric_find(const uint8_t *incarnation)
{
	for (struct native *n = fabric.natives; n; n = n->next)
		if (memcmp(n->incarnation, incarnation, sizeof(n->incarnation)) == 0)
			return n;
	return NULL;
}

void *mock_alloc(struct native *n, uint64_t bytes)
{
	void *p = n->host->alloc(n->host->ctx, bytes, 16);

	if (p)
		memset(p, 0, bytes);
	return p;
}

void mock_free(struct native *n, void *p)
{
	n->host->free(n->host->ctx, p);
}

/* xorshift64* (Vigna, "An experimental exploration of Marsaglia's xorshift generators", 2016) */
uint32_t mock_dice(struct native *n, uint32_t sides)
{
	n->dice ^= n->dice >> 12;
	n->dice ^= n->dice << 25;
	n->dice ^= n->dice >> 27;
	return (uint32_t)((n->dice * UINT64_C(0x2545F4914F6CDD1D)) >> 33) % sides;
}
