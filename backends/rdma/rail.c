/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Rails: device x port x address.  A rail is chosen by the type and the address of a GID, never by
 * its index: indexes change when an address comes or goes, and differ between hosts and
 * containers.
 */
#include "config.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "backends/rdma/rdma.h"
#include "backends/rdma/verbs.h"

#define MAX_GIDS 512

/* Of a partition key, beside PKEY_BASE: the bit of full membership. */
#define PKEY_FULL 0x8000u
#define PKEY_DEFAULT 0xffffu

/* In an invitation: family, port, scope 0, address; network order where it has one. */
void rail_address(const struct sockaddr_storage *addr, uint8_t *out)
{
	memset(out, 0, NATIVE_ADDRESS_BYTES);
	if (addr->ss_family == AF_INET) {
		const struct sockaddr_in *in = (const void *)addr;

		out[0] = 4;
		memcpy(out + 2, &in->sin_port, 2);
		memcpy(out + 4, &in->sin_addr, 4);
	} else {
		const struct sockaddr_in6 *in6 = (const void *)addr;

		out[0] = 6;
		memcpy(out + 2, &in6->sin6_port, 2);
		memcpy(out + 4, &in6->sin6_addr, 16);
	}
}

int rail_parse_address(const uint8_t *in, struct sockaddr_storage *addr)
{
	memset(addr, 0, sizeof(*addr));
	if (in[0] == 4) {
		struct sockaddr_in *to = (void *)addr;

		to->sin_family = AF_INET;
		memcpy(&to->sin_port, in + 2, 2);
		memcpy(&to->sin_addr, in + 4, 4);
		return 0;
	}
	if (in[0] == 6) {
		struct sockaddr_in6 *to = (void *)addr;

		to->sin6_family = AF_INET6;
		memcpy(&to->sin6_port, in + 2, 2);
		memcpy(&to->sin6_addr, in + 4, 16);
		return 0;
	}
	return EAFNOSUPPORT;
}

void rail_text(const struct sockaddr_storage *addr, char *text, size_t size)
{
	const void *at = addr->ss_family == AF_INET
				 ? (const void *)&((const struct sockaddr_in *)addr)->sin_addr
				 : (const void *)&((const struct sockaddr_in6 *)addr)->sin6_addr;

	if (!inet_ntop(addr->ss_family, at, text, (socklen_t)size))
		snprintf(text, size, "?");
}

static bool is_link_local(const union ibv_gid *gid)
{
	return gid->raw[0] == 0xfe && (gid->raw[1] & 0xc0) == 0x80;
}

/* A RoCE GID is an IPv6 address; those of IPv4 are mapped (IBTA annex 17, RoCEv2). */
void rail_gid_address(const struct ibv_gid_entry *e, struct sockaddr_storage *addr)
{
	const struct in6_addr *in6 = (const void *)e->gid.raw;

	memset(addr, 0, sizeof(*addr));
	if (IN6_IS_ADDR_V4MAPPED(in6)) {
		struct sockaddr_in *to = (void *)addr;

		to->sin_family = AF_INET;
		memcpy(&to->sin_addr, e->gid.raw + 12, 4);
	} else {
		struct sockaddr_in6 *to = (void *)addr;

		to->sin6_family = AF_INET6;
		to->sin6_addr = *in6;
		if (is_link_local(&e->gid))
			to->sin6_scope_id = e->ndev_ifindex;
	}
}

/* The better of two addresses of one port: the family asked for, then global before link-local. */
static int rank(const struct native *n, const struct ibv_gid_entry *e)
{
	bool v4 = IN6_IS_ADDR_V4MAPPED((const struct in6_addr *)(const void *)e->gid.raw);

	return (v4 != (n->set.prefer_ipv6 != 0) ? 2 : 0) + (is_link_local(&e->gid) ? 0 : 1);
}

/*
 * Where the kernel put them says nothing: of two that rank alike that of the older interface (a VLAN is younger
 * than what it is on top of), then the smaller one.
 */
static bool better(const struct native *n, const struct ibv_gid_entry *a,
		   const struct ibv_gid_entry *b)
{
	if (rank(n, a) != rank(n, b))
		return rank(n, a) > rank(n, b);
	if (a->ndev_ifindex != b->ndev_ifindex)
		return a->ndev_ifindex < b->ndev_ifindex;
	return memcmp(&a->gid, &b->gid, sizeof(a->gid)) < 0;
}

/* Does one pattern of the key rdma.rails, DEVICE[:PORT[:ADDRESS]] or ADDRESS, name this rail? */
static bool pattern_names(const char *p, size_t len, const char *device, unsigned port,
			  const char *address)
{
	char full[160];
	size_t n;

	if (len == strlen(address) && !memcmp(p, address, len))
		return true;
	n = (size_t)snprintf(full, sizeof(full), "%s:%u:%s", device, port, address);
	if (len > n || memcmp(p, full, len))
		return false;
	return len == strlen(device) || full[len] == '\0' ||
	       (full[len] == ':' && memchr(p, ':', len));
}

static bool wanted(const struct native *n, const char *device, unsigned port, const char *address,
		   bool *explicit_address)
{
	const char *p = n->set.rails;

	*explicit_address = false;
	if (!*p)
		return true;
	while (*p) {
		size_t len = strcspn(p, ",");

		if (len && pattern_names(p, len, device, port, address)) {
			*explicit_address =
				len >= strlen(address) &&
				!memcmp(p + len - strlen(address), address, strlen(address));
			return true;
		}
		p += len + (p[len] == ',');
	}
	return false;
}

static void add_rail(struct rail_look *look, const struct ibv_gid_entry *e)
{
	struct native *n = look->native;
	struct rdma_rail *r;
	char text[INET6_ADDRSTRLEN];

	if (n->nrails == NATIVE_MAX_RAILS) {
		report_rail(look, e, "there are %u rails already", NATIVE_MAX_RAILS);
		return;
	}
	r = &n->rails[n->nrails++];
	memset(r, 0, sizeof(*r));
	r->native = n;
	snprintf(r->device, sizeof(r->device), "%s", look->device);
	r->port = (uint8_t)e->port_num;
	r->gid = e->gid;
	r->gid_index = e->gid_index;
	r->pkey_index = look->pkey_index;
	r->max_message = look->port_attr.max_msg_sz;
	rail_gid_address(e, &r->addr);
	rail_text(&r->addr, text, sizeof(text));
	snprintf(r->info.name, sizeof(r->info.name), "%.24s/%u %.30s", look->device, r->port, text);
	r->info.up = look->port_attr.state == IBV_PORT_ACTIVE;
	r->state = r->info.up ? RAIL_UP : RAIL_DOWN;
	r->info.mtu = 128u << look->port_attr.active_mtu;
	r->info.context = n->ncontexts;
	report_rail(look, e, NULL);
}

/* What an address may become. */
enum fate { OTHER_PORT, OTHER_TYPE, NOT_NAMED, NAMED, CANDIDATE };

static enum fate fate_of(const struct rail_look *look, const struct ibv_gid_entry *e)
{
	struct sockaddr_storage addr;
	char text[INET6_ADDRSTRLEN];
	bool exact;

	if (e->port_num != look->port)
		return OTHER_PORT;
	if (e->gid_type != IBV_GID_TYPE_ROCE_V2)
		return OTHER_TYPE;
	rail_gid_address(e, &addr);
	rail_text(&addr, text, sizeof(text));
	if (!wanted(look->native, look->device, look->port, text, &exact))
		return NOT_NAMED;
	return exact ? NAMED : CANDIDATE;
}

/* The connection manager would listen, and connect, on another device. */
static bool is_elsewhere(const struct rail_look *look, const struct ibv_gid_entry *e,
			 char other[64])
{
	struct sockaddr_storage addr;

	rail_gid_address(e, &addr);
	return look->native->several && cm_elsewhere(look->native, &addr, look->device, other);
}

/* Of one port: every address that is named, else the best one of those that match. */
static const struct ibv_gid_entry *take_from_port(struct rail_look *look)
{
	const struct ibv_gid_entry *best = NULL;

	for (int i = 0; i < look->ngids; i++) {
		const struct ibv_gid_entry *e = &look->gids[i];
		enum fate fate = fate_of(look, e);

		if (fate != NAMED && fate != CANDIDATE)
			continue;
		if (fate == CANDIDATE && best && !better(look->native, e, best))
			continue;
		if (is_elsewhere(look, e, look->native->elsewhere))
			continue;
		if (fate == NAMED)
			add_rail(look, e);
		else
			best = e;
	}
	if (best)
		add_rail(look, best);
	return best;
}

/*
 * Where the port's table holds the key, whatever the membership, a full one first: as the kernel finds it
 * for librdmacm (ib_find_cached_pkey), which on RoCE always asks for the default partition (cma_ib_init_qp_attr).
 */
static bool find_pkey(struct rail_look *look, uint16_t wanted_key)
{
	bool found = false;
	uint16_t key;

	look->pkey_index = 0;
	for (int i = 0; i < look->port_attr.pkey_tbl_len; i++) {
		if (verbs_query_pkey(look->verbs, (uint8_t)look->port, i, &key) ||
		    (key & PKEY_BASE) != (wanted_key & PKEY_BASE))
			continue;
		if (!found || (key & PKEY_FULL))
			look->pkey_index = (uint16_t)i;
		found = true;
		if (key & PKEY_FULL)
			break;
	}
	return found;
}

/* Why nothing of the port is used, or "". */
static void close_port(struct rail_look *look)
{
	const struct rdma_settings *set = &look->native->set;
	bool found = find_pkey(look, set->pkey ? set->pkey : PKEY_DEFAULT);

	look->closed[0] = '\0';
	/* A port that is down counts only if it was asked for by name. */
	if (look->port_attr.state != IBV_PORT_ACTIVE && !set->rails[0])
		snprintf(look->closed, sizeof(look->closed), "its port is down");
	else if (set->pkey && !found)
		snprintf(look->closed, sizeof(look->closed),
			 "its port is not in the partition 0x%04x", set->pkey & PKEY_BASE);
}

/* What is not taken of the port, and why. */
static void report_rest(const struct rail_look *look, const struct ibv_gid_entry *best)
{
	char other[64];
	bool any = false;

	for (int i = 0; i < look->ngids; i++) {
		const struct ibv_gid_entry *e = &look->gids[i];
		enum fate fate = fate_of(look, e);

		any |= fate != OTHER_PORT;
		if (fate == OTHER_TYPE)
			report_rail(look, e, "only RoCEv2 is used");
		else if (fate == NOT_NAMED)
			report_rail(look, e, "rdma.rails does not name it");
		else if (fate != OTHER_PORT && look->closed[0])
			report_rail(look, e, "%s", look->closed);
		else if (fate != OTHER_PORT && e != best && is_elsewhere(look, e, other))
			report_rail(look, e, "for the connection manager it is an address of %s",
				    other);
		else if (fate == CANDIDATE && e != best)
			report_rail(look, e, "of this port another address is used");
	}
	if (!any)
		report_rail(look, NULL, "the port has no address");
}

static void find_on_port(struct rail_look *look)
{
	const struct ibv_gid_entry *best;

	close_port(look);
	best = look->closed[0] ? NULL : take_from_port(look);
	if (look->native->report)
		report_rest(look, best);
}

static void find_on_ports(struct rail_look *look)
{
	for (look->port = 1; look->port <= look->attr.phys_port_cnt; look->port++) {
		int rc = verbs_query_port(look->verbs, (uint8_t)look->port, &look->port_attr);

		look->port_known = !rc;
		if (rc)
			report_rail(look, NULL, "the port cannot be queried: %s",
				    strerrordesc_np(rc));
		else
			find_on_port(look);
	}
}

/* Looks at one device through a context of its own, which holds nothing and is closed again. */
static void find_on_device(struct native *n, struct ibv_device *dev, struct ibv_gid_entry *gids)
{
	struct rail_look look = {.native = n, .device = ibv_get_device_name(dev), .gids = gids};
	uint32_t before = n->nrails;
	int rc;

	if (n->ncontexts == NATIVE_MAX_CONTEXTS) {
		report_rail(&look, NULL, "there are %u devices already", NATIVE_MAX_CONTEXTS);
		return;
	}
	rc = verbs_open_device(n->log, dev, &look.verbs);
	if (rc) {
		report_rail(&look, NULL, "it cannot be opened: %s", strerrordesc_np(rc));
		n->full |= rc == EAGAIN;
		return;
	}
	look.ngids = verbs_query_gids(look.verbs, gids, MAX_GIDS);
	rc = look.ngids < 0 ? -look.ngids : verbs_query_device(look.verbs, &look.attr);
	if (rc) {
		report_rail(&look, NULL, "it cannot be queried: %s", strerrordesc_np(rc));
	} else {
		report_begin(&look);
		find_on_ports(&look);
	}
	verbs_close_device(n->log, look.verbs);
	if (n->nrails > before)
		snprintf(n->devices[n->ncontexts++], sizeof(n->devices[0]), "%s", look.device);
}

static escrow_status no_rail(const struct native *n, int ndev, struct escrow_error *error)
{
	char partition[32] = "";

	if (!ndev)
		return error_set(error, ESCROW_E_DEVICE, ENODEV, "no RDMA device on this machine");
	if (n->full)
		return context_refused(error, EAGAIN, "a device");
	if (n->elsewhere[0])
		return error_set(
			error, ESCROW_E_DEVICE, ENODEV,
			"%d RDMA devices, but the connection manager takes the addresses that "
			"rdma.rails names (%.80s) for those of %s",
			ndev, n->set.rails, n->elsewhere);
	if (n->set.pkey)
		snprintf(partition, sizeof(partition), " in the partition 0x%04x",
			 n->set.pkey & PKEY_BASE);
	return error_set(error, ESCROW_E_DEVICE, ENODEV,
			 "%d RDMA device(s), but no active port%s with a RoCEv2 address%s%.80s",
			 ndev, partition, n->set.rails[0] ? " that rdma.rails names: " : "",
			 n->set.rails);
}

escrow_status rail_find(struct native *n, struct escrow_error *error)
{
	struct ibv_gid_entry *gids;
	struct ibv_device **list;
	int ndev = 0;

	gids = n->host->alloc(n->host->ctx, MAX_GIDS * sizeof(*gids), 8);
	if (!gids)
		return error_set(error, ESCROW_E_NO_MEMORY, ENOMEM, "table of GIDs");
	list = ibv_get_device_list(&ndev);
	n->several = ndev > 1;
	for (int i = 0; list && i < ndev; i++)
		find_on_device(n, list[i], gids);
	if (list)
		ibv_free_device_list(list);
	n->host->free(n->host->ctx, gids);
	return n->nrails ? ESCROW_OK : no_rail(n, ndev, error);
}

int rail_gid_is_there(const struct rdma_rail *rail, struct ibv_context *verbs)
{
	const struct escrow_host *host = rail->native->host;
	struct ibv_gid_entry *gids = host->alloc(host->ctx, MAX_GIDS * sizeof(*gids), 8);
	int found = 0, n;

	if (!gids)
		return 1; /* not knowing is no reason to stop a rail */
	n = verbs_query_gids(verbs, gids, MAX_GIDS);
	for (int i = 0; i < n && !found; i++)
		found = gids[i].port_num == rail->port &&
			!memcmp(&gids[i].gid, &rail->gid, sizeof(rail->gid));
	host->free(host->ctx, gids);
	return n < 0 || found;
}
