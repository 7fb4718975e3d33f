/* SPDX-License-Identifier: BSD-2-Clause */
/* Rails: softverbs0, softverbs1, ... each an RoCEv2 port without a network device. */
#include "tests/softverbs/device.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <stdio.h>

#include "tests/softverbs/qp.h"
#include "tests/softverbs/script.h"

#undef ibv_get_device_list
#undef ibv_query_port

static struct device device_rails[RAILS_MAX];
static bool device_ready;

/* Link-local by EUI-64, IPv4-mapped, a unique local IPv6 address, and the VLAN's, IPv4-mapped. */
static void device_addresses(struct device *d, int rail)
{
	uint8_t *link = d->gids[DEVICE_LINK_LOCAL].raw, *v4 = d->gids[DEVICE_IPV4].raw;
	uint8_t *v6 = d->gids[DEVICE_IPV6].raw, *vlan = d->gids[DEVICE_VLAN].raw;

	link[0] = 0xfe;
	link[1] = 0x80;
	memcpy(link + 8, "\x52\x56\x77\xff\xfe", 5);
	link[13] = (uint8_t)rail;
	link[15] = 1;
	v4[10] = 0xff;
	v4[11] = 0xff;
	memcpy(v4 + 12, &config_get()->addr[rail], 4);
	v6[0] = 0xfd;
	v6[1] = 0x77;
	v6[3] = (uint8_t)(rail + 1);
	v6[15] = 1;
	vlan[10] = 0xff;
	vlan[11] = 0xff;
	vlan[12] = 127;
	vlan[13] = 78;
	vlan[14] = (uint8_t)rail;
	vlan[15] = 1;
}

static void device_make(int rail)
{
	struct device *d = &device_rails[rail];

	d->rail = rail;
	d->port_up = true;
	d->mtu = IBV_MTU_4096;
	d->rd_atomic = DEVICE_MAX_RD_ATOMIC;
	d->pkeys[0] = 0xffff;
	d->npkeys = 1;
	list_init(&d->contexts);
	d->ib.node_type = IBV_NODE_CA;
	d->ib.transport_type = IBV_TRANSPORT_IB;
	if (config_get()->personality == PERSONALITY_SIW) {
		d->ib.node_type = IBV_NODE_RNIC;
		d->ib.transport_type = IBV_TRANSPORT_IWARP;
	}
	snprintf(d->ib.name, sizeof(d->ib.name), "softverbs%d", rail);
	snprintf(d->ib.dev_name, sizeof(d->ib.dev_name), "softverbs-uverbs%d", rail);
	snprintf(d->ib.dev_path, sizeof(d->ib.dev_path),
		 "/sys/class/infiniband_verbs/softverbs-uverbs%d", rail);
	snprintf(d->ib.ibdev_path, sizeof(d->ib.ibdev_path), "/sys/class/infiniband/softverbs%d",
		 rail);
	device_addresses(d, rail);
}

struct device *device_get(int rail)
{
	int i;

	if (!device_ready) {
		for (i = 0; i < config_get()->rails; i++)
			device_make(i);
		device_ready = true;
	}
	return rail >= 0 && rail < config_get()->rails ? &device_rails[rail] : NULL;
}

void device_forked(void)
{
	device_ready = false;
	memset(device_rails, 0, sizeof(device_rails));
}

int device_rail_of_gid(const union ibv_gid *gid)
{
	struct device *d;
	int rail, i;

	for (rail = 0; (d = device_get(rail)); rail++)
		for (i = 0; i < DEVICE_GIDS; i++)
			if (memcmp(&d->gids[i], gid, sizeof(*gid)) == 0)
				return rail;
	return -1;
}

static bool device_addr_is_ours(struct in_addr addr)
{
	struct ifaddrs *all, *i;
	bool ours = false;

	if ((ntohl(addr.s_addr) >> 24) == 127)
		return true;
	if (getifaddrs(&all))
		return false;
	for (i = all; i && !ours; i = i->ifa_next)
		ours = i->ifa_addr && i->ifa_addr->sa_family == AF_INET &&
		       ((struct sockaddr_in *)(void *)i->ifa_addr)->sin_addr.s_addr == addr.s_addr;
	freeifaddrs(all);
	return ours;
}

int device_rail_of_addr(struct in_addr addr)
{
	int rail;

	for (rail = 0; rail < config_get()->rails; rail++) {
		const struct device *d = device_get(rail);

		if (config_get()->addr[rail].s_addr == addr.s_addr)
			return d->gid_gone ? -1 : rail;
		if (memcmp(d->gids[DEVICE_VLAN].raw + 12, &addr, sizeof(addr)) == 0)
			return rail;
	}
	/* Of 127.77.*, only the rails that exist. */
	if ((ntohl(addr.s_addr) >> 16) == 0x7f4d)
		return -1;
	return device_addr_is_ours(addr) ? 0 : -1;
}

static struct device *device_of(struct ibv_device *ib)
{
	return container(ib, struct device, ib);
}

EXPORT struct ibv_device **ibv_get_device_list(int *num)
{
	struct ibv_device **out;
	int rail;

	base_lock();
	out = calloc(RAILS_MAX + 1, sizeof(struct ibv_device *));
	for (rail = 0; out && device_get(rail); rail++)
		out[rail] = &device_get(rail)->ib;
	base_unlock();
	if (num)
		*num = out ? config_get()->rails : 0;
	return out;
}

EXPORT void ibv_free_device_list(struct ibv_device **all)
{
	free(all);
}

EXPORT const char *ibv_get_device_name(struct ibv_device *ib)
{
	return ib->name;
}

EXPORT __be64 ibv_get_device_guid(struct ibv_device *ib)
{
	__be64 guid;

	memcpy(&guid, device_of(ib)->gids[0].raw + 8, sizeof(guid));
	return guid;
}

EXPORT int ibv_get_device_index(struct ibv_device *ib)
{
	return device_of(ib)->rail;
}

/* How a program may know what it is: the PCI vendor, SIW_VENDOR_ID of kernel siw.h, or one of nobody. */
static uint32_t device_vendor(void)
{
	switch (config_get()->personality) {
	case PERSONALITY_SIW:
		return 0x626d74;
	case PERSONALITY_IRDMA:
		return 0x8086;
	case PERSONALITY_OCRDMA:
		return 0x10df;
	default:
		return 0x5f5e5f;
	}
}

static void device_attr(const struct device *d, struct ibv_device_attr *a)
{
	memset(a, 0, sizeof(*a));
	snprintf(a->fw_ver, sizeof(a->fw_ver), "softverbs");
	memcpy(&a->node_guid, d->gids[0].raw + 8, sizeof(a->node_guid));
	a->sys_image_guid = a->node_guid;
	a->max_mr_size = DEVICE_MAX_MR;
	a->page_size_cap = 0xfffff000;
	a->vendor_id = device_vendor();
	a->max_qp = DEVICE_MAX_OBJECTS;
	a->max_qp_wr = DEVICE_MAX_QP_WR;
	a->device_cap_flags = IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_MGT_EXTENSIONS |
			      IBV_DEVICE_MEM_WINDOW_TYPE_2B | IBV_DEVICE_RC_RNR_NAK_GEN |
			      IBV_DEVICE_PORT_ACTIVE_EVENT | IBV_DEVICE_SYS_IMAGE_GUID |
			      IBV_DEVICE_CURR_QP_STATE_MOD;
	a->max_sge = DEVICE_MAX_SGE;
	a->max_sge_rd = DEVICE_MAX_SGE;
	a->max_cq = DEVICE_MAX_OBJECTS;
	a->max_cqe = DEVICE_MAX_CQE;
	a->max_mr = DEVICE_MAX_KEYS;
	a->max_mw = DEVICE_MAX_KEYS;
	a->max_pd = DEVICE_MAX_OBJECTS;
	a->max_qp_rd_atom = d->rd_atomic;
	a->max_qp_init_rd_atom = d->rd_atomic;
	a->max_res_rd_atom = DEVICE_MAX_RD_ATOMIC * 1024;
	a->atomic_cap = IBV_ATOMIC_NONE;
	a->max_pkeys = DEVICE_PKEYS;
	a->local_ca_ack_delay = 15;
	a->phys_port_cnt = 1;
}

EXPORT int ibv_query_device(struct ibv_context *ib, struct ibv_device_attr *attr)
{
	struct context *ctx = context_of(ib);
	struct call call;

	call_begin(&call, "query_device", &ctx->obj, OBJECT_CONTEXT);
	if (call_runs(&call))
		device_attr(ctx->device, attr);
	return call_end(&call);
}

static int device_query_ex(struct ibv_context *ib, const struct ibv_query_device_ex_input *in,
			   struct ibv_device_attr_ex *attr, size_t size)
{
	if (size < sizeof(attr->orig_attr))
		return EINVAL;
	memset(attr, 0, size);
	if (size >= offsetof(struct ibv_device_attr_ex, phys_port_cnt_ex) + sizeof(uint32_t))
		attr->phys_port_cnt_ex = 1;
	return ibv_query_device(ib, &attr->orig_attr);
}

static int port_query(struct ibv_context *ib, uint8_t port, struct ibv_port_attr *attr, size_t size)
{
	struct context *ctx = context_of(ib);
	struct ibv_port_attr a = {0};
	struct call call;

	call_begin(&call, "query_port", &ctx->obj, OBJECT_CONTEXT);
	if (call_runs(&call) && port != 1) {
		call.rc = EINVAL;
	} else if (call_runs(&call)) {
		a.state = ctx->device->port_up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
		a.phys_state = ctx->device->port_up ? 5 : 3;
		a.max_mtu = IBV_MTU_4096;
		a.active_mtu = ctx->device->mtu;
		a.gid_tbl_len = DEVICE_GID_TABLE;
		a.max_msg_sz = DEVICE_MAX_MSG;
		a.pkey_tbl_len = (uint16_t)ctx->device->npkeys;
		a.active_width = 1;
		a.active_speed = 32;
		a.link_layer = IBV_LINK_LAYER_ETHERNET;
		memcpy(attr, &a, size < sizeof(a) ? size : sizeof(a));
	}
	return call_end(&call);
}

/* The entry point of programs built before link_layer existed: the struct ends before it. */
EXPORT int ibv_query_port(struct ibv_context *ib, uint8_t port, struct _compat_ibv_port_attr *attr)
{
	return port_query(ib, port, (struct ibv_port_attr *)(void *)attr,
			  offsetof(struct ibv_port_attr, port_cap_flags2));
}

void context_set_ops(struct context *ctx)
{
	struct ibv_context_ops *ops = &ctx->v.context.ops;

	ctx->v.sz = sizeof(ctx->v);
	ctx->v.query_port = port_query;
	ctx->v.query_device_ex = device_query_ex;
	ctx->v.create_qp_ex = qp_create_ex;
	ctx->v.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
	ops->alloc_mw = mw_alloc;
	ops->dealloc_mw = mw_dealloc;
	ops->bind_mw = post_bind;
	ops->poll_cq = cq_poll;
	ops->req_notify_cq = cq_arm;
	ops->post_send = post_send;
	ops->post_recv = post_recv;
}

EXPORT void softverbs_port(int rail, int up)
{
	struct device *d;
	struct list *i;

	base_lock();
	d = device_get(rail);
	if (d && d->port_up != (up != 0)) {
		d->port_up = up != 0;
		list_for_each(i, &d->contexts)
			async_raise(container(i, struct context, node),
				    up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR, NULL, NULL);
	}
	base_unlock();
}

EXPORT void softverbs_limits(int rail, int mtu, int rd_atomic)
{
	struct device *d;

	base_lock();
	d = device_get(rail);
	if (d && mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 && rd_atomic > 0 &&
	    rd_atomic <= DEVICE_MAX_RD_ATOMIC) {
		d->mtu = (enum ibv_mtu)mtu;
		d->rd_atomic = (uint8_t)rd_atomic;
	}
	base_unlock();
}

EXPORT void softverbs_blackhole(int rail, int on)
{
	struct device *d;

	base_lock();
	d = device_get(rail);
	if (d)
		d->blackhole = on != 0;
	base_unlock();
}
