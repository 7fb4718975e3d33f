/* SPDX-License-Identifier: BSD-2-Clause */
/* The tables of a port: its addresses, which on RoCE are the GIDs, and its partition keys. */
#include "tests/softverbs/device.h"

#include <arpa/inet.h>

#include "tests/softverbs/softverbs.h"

/* Which of its addresses is there, or -1. */
static int device_which(const struct device *d, int index)
{
	int which = index - d->first_gid;

	if (which < 0 || which >= DEVICE_GIDS)
		return -1;
	if (d->gids_turned)
		which = DEVICE_GIDS - 1 - which;
	return which == DEVICE_IPV4 && d->gid_gone ? -1 : which;
}

const union ibv_gid *device_gid(const struct device *d, int index)
{
	int which = device_which(d, index);

	return which < 0 ? NULL : &d->gids[which];
}

static int device_address(const struct device *d, const struct in6_addr *addr)
{
	int which;

	for (which = 0; which < DEVICE_GIDS; which++)
		if (memcmp(&d->gids[which], addr, sizeof(*addr)) == 0)
			return which;
	return DEVICE_IPV4;
}

const union ibv_gid *device_gid_of(const struct device *d, const struct in6_addr *addr)
{
	return &d->gids[device_address(d, addr)];
}

int device_gid_index(const struct device *d, const struct in6_addr *addr)
{
	int which = device_address(d, addr);

	return d->first_gid + (d->gids_turned ? DEVICE_GIDS - 1 - which : which);
}

EXPORT int ibv_query_gid(struct ibv_context *ib, uint8_t port, int index, union ibv_gid *gid)
{
	const union ibv_gid *found;

	if (port != 1 || index < 0 || index >= DEVICE_GID_TABLE) {
		errno = EINVAL;
		return -1;
	}
	memset(gid, 0, sizeof(*gid));
	found = device_gid(context_of(ib)->device, index);
	if (found)
		*gid = *found;
	return 0;
}

/* Private to rdma-core's own tools (ibv_devinfo): 1 is RoCE v2 there. */
int ibv_query_gid_type(struct ibv_context *ib, uint8_t port, unsigned int index, int *type);
EXPORT int ibv_query_gid_type(struct ibv_context *ib, uint8_t port, unsigned int index, int *type)
{
	if (port != 1 || index >= DEVICE_GID_TABLE) {
		errno = EINVAL;
		return -1;
	}
	*type = 1;
	return 0;
}

/* No network device has these numbers; that of the VLAN was made later. */
static uint32_t device_interface(const struct device *d, int index)
{
	return (device_which(d, index) == DEVICE_VLAN ? 2000000u : 1000000u) + (uint32_t)d->rail;
}

static void gid_entry(const struct device *d, uint32_t index, struct ibv_gid_entry *e, size_t size)
{
	struct ibv_gid_entry full = {.gid = *device_gid(d, (int)index),
				     .gid_index = index,
				     .port_num = 1,
				     .ndev_ifindex = device_interface(d, (int)index),
				     .gid_type = IBV_GID_TYPE_ROCE_V2};

	memcpy(e, &full, size < sizeof(full) ? size : sizeof(full));
}

EXPORT int _ibv_query_gid_ex(struct ibv_context *ib, uint32_t port, uint32_t index,
			     struct ibv_gid_entry *entry, uint32_t flags, size_t size)
{
	if (port != 1 || index >= DEVICE_GID_TABLE || flags)
		return EINVAL;
	if (!device_gid(context_of(ib)->device, (int)index))
		return ENODATA;
	gid_entry(context_of(ib)->device, index, entry, size);
	return 0;
}

EXPORT ssize_t _ibv_query_gid_table(struct ibv_context *ib, struct ibv_gid_entry *entries,
				    size_t max, uint32_t flags, size_t size)
{
	const struct device *d = context_of(ib)->device;
	int n = 0, i;

	if (flags || max < DEVICE_GIDS)
		return -EINVAL;
	for (i = 0; i < DEVICE_GID_TABLE; i++) {
		if (!device_gid(d, i))
			continue;
		gid_entry(d, (uint32_t)i,
			  (struct ibv_gid_entry *)(void *)((char *)entries + (size_t)n * size),
			  size);
		n++;
	}
	return n;
}

EXPORT int ibv_query_pkey(struct ibv_context *ib, uint8_t port, int index, __be16 *pkey)
{
	const struct device *d = context_of(ib)->device;

	if (port != 1 || index < 0 || index >= d->npkeys) {
		errno = EINVAL;
		return -1;
	}
	*pkey = htons(d->pkeys[index]);
	return 0;
}

/* The key with its membership (rdma-core libibverbs/verbs.c). */
EXPORT int ibv_get_pkey_index(struct ibv_context *ib, uint8_t port, __be16 pkey)
{
	const struct device *d = context_of(ib)->device;
	int i;

	for (i = 0; port == 1 && i < d->npkeys; i++)
		if (htons(d->pkeys[i]) == pkey)
			return i;
	return -1;
}

EXPORT void softverbs_gid(int rail, int there)
{
	struct device *d;
	struct list *i;

	base_lock();
	d = device_get(rail);
	if (d && d->gid_gone != !there) {
		d->gid_gone = !there;
		list_for_each(i, &d->contexts) async_raise(container(i, struct context, node),
							   IBV_EVENT_GID_CHANGE, NULL, NULL);
	}
	base_unlock();
}

EXPORT void softverbs_turn_gids(int rail, int first)
{
	struct device *d;

	base_lock();
	d = device_get(rail);
	if (d && first >= 0 && first <= DEVICE_GID_TABLE - DEVICE_GIDS)
		d->first_gid = first;
	if (d)
		d->gids_turned = !d->gids_turned;
	base_unlock();
}

EXPORT void softverbs_pkeys(int rail, const uint16_t *keys, int count)
{
	struct device *d;

	base_lock();
	d = device_get(rail);
	if (d && count > 0 && count <= DEVICE_PKEYS) {
		memcpy(d->pkeys, keys, (size_t)count * sizeof(*keys));
		d->npkeys = count;
	}
	base_unlock();
}
