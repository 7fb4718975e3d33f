/* SPDX-License-Identifier: BSD-2-Clause */
/* What was found where, and why it is not used: for whoever asks before an engine is open. */
#include <arpa/inet.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "backends/rdma/rdma.h"

void report_begin(struct rail_look *look)
{
	if (!look->native->report)
		return;
	look->provider = provider_of(look->verbs, &look->attr);
	look->refusal.size = sizeof(look->refusal);
	context_check(look->native, look->device, look->verbs, &look->attr, &look->refusal);
}

static const char *type_of(const struct ibv_gid_entry *e)
{
	switch (e->gid_type) {
	case IBV_GID_TYPE_ROCE_V2:
		return "RoCEv2";
	case IBV_GID_TYPE_ROCE_V1:
		return "RoCEv1";
	case IBV_GID_TYPE_IB:
		return "InfiniBand";
	default:
		return "";
	}
}

static void fill_device(struct escrow_rail *rail, const struct rail_look *look)
{
	snprintf(rail->device, sizeof(rail->device), "%s", look->device);
	if (look->provider)
		snprintf(rail->provider, sizeof(rail->provider), "%s", look->provider->name);
	rail->numa_node = topology_node(look->native->set.sysfs, look->device);
	rail->port = look->port;
	rail->state = ESCROW_RAIL_UNKNOWN;
	if (!look->port_known)
		return;
	rail->state = look->port_attr.state == IBV_PORT_ACTIVE ? ESCROW_RAIL_UP : ESCROW_RAIL_DOWN;
	rail->mtu = 128u << look->port_attr.active_mtu;
}

static void fill_address(struct escrow_rail *rail, const struct ibv_gid_entry *e)
{
	struct sockaddr_storage addr;

	rail->gid_index = e->gid_index;
	memcpy(rail->gid, e->gid.raw, sizeof(rail->gid));
	snprintf(rail->type, sizeof(rail->type), "%s", type_of(e));
	rail_gid_address(e, &addr);
	rail_text(&addr, rail->address, sizeof(rail->address));
}

void report_rail(const struct rail_look *look, const struct ibv_gid_entry *gid, const char *why,
		 ...)
{
	const struct native_rail_report *report = look->native->report;
	struct escrow_rail rail = {.use = ESCROW_RAIL_UNUSED, .gid_index = UINT32_MAX};
	va_list args;

	if (!report)
		return;
	fill_device(&rail, look);
	if (gid)
		fill_address(&rail, gid);
	if (why) {
		va_start(args, why);
		vsnprintf(rail.why, sizeof(rail.why), why, args);
		va_end(args);
	} else if (look->refusal.status < 0) {
		rail.use = ESCROW_RAIL_REFUSED;
		snprintf(rail.why, sizeof(rail.why), "%.160s", look->refusal.text);
	} else {
		rail.use = ESCROW_RAIL_USED;
	}
	report->told(report->ctx, &rail);
}
