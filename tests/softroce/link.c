/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/softroce/link.h"
#include "tests/lib/testing.h"

#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define WAIT_MS 30000

const char *device_rail(void)
{
	const char *rails = getenv("ESCROW_TEST_RAILS");

	return rails && *rails ? rails : NULL;
}

static void parse_address(const char *text, union ibv_gid *gid)
{
	struct in6_addr six;
	struct in_addr four;

	if (inet_pton(AF_INET6, text, &six) == 1) {
		memcpy(gid->raw, &six, sizeof(six));
		return;
	}
	ck_assert_msg(inet_pton(AF_INET, text, &four) == 1, "not an address: %s", text);
	/* RoCE v2 writes an IPv4 address as the IPv6 address ::ffff:a.b.c.d (InfiniBand annex A17) */
	memset(gid->raw, 0, sizeof(gid->raw));
	memset(gid->raw + 10, 0xff, 2);
	memcpy(gid->raw + 12, &four, sizeof(four));
}

static struct ibv_context *open_by_name(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = NULL;

	ck_assert_ptr_nonnull(list);
	for (int i = 0; list[i]; i++) {
		if (strcmp(ibv_get_device_name(list[i]), name) == 0)
			context = ibv_open_device(list[i]);
	}
	ibv_free_device_list(list);
	ck_assert_msg(context != NULL, "cannot open device %s", name);
	return context;
}

/* The index of a GID is not fixed: it is looked up by the address. */
static uint8_t gid_index(const struct device *device)
{
	struct ibv_gid_entry entries[64];
	ssize_t n = ibv_query_gid_table(device->context, entries, 64, 0);

	for (ssize_t i = 0; i < n; i++) {
		if (entries[i].port_num == device->port &&
		    entries[i].gid_type == IBV_GID_TYPE_ROCE_V2 &&
		    memcmp(&entries[i].gid, &device->gid, sizeof(device->gid)) == 0)
			return (uint8_t)entries[i].gid_index;
	}
	ck_abort_msg("the rail's address is not a GID of its device");
}

void device_open(struct device *device)
{
	char name[64], address[64];
	unsigned int port;

	ck_assert_msg(sscanf(device_rail(), "%63[^:]:%u:%63[^,]", name, &port, address) == 3,
		      "not DEVICE:PORT:ADDRESS: %s", device_rail());
	device->context = open_by_name(name);
	device->port = (uint8_t)port;
	parse_address(address, &device->gid);
	device->gid_index = gid_index(device);
	device->mtu = IBV_MTU_1024;
	device->pd = ibv_alloc_pd(device->context);
	ck_assert_ptr_nonnull(device->pd);
}

void device_close(struct device *device)
{
	ck_assert_int_eq(ibv_dealloc_pd(device->pd), 0);
	ck_assert_int_eq(ibv_close_device(device->context), 0);
}

struct ibv_qp *device_qp(const struct device *device, struct ibv_cq *cq, uint32_t depth)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = depth,
			.max_recv_wr = 1,
			.max_send_sge = 1,
			.max_recv_sge = 1,
			.max_inline_data = LINK_INLINE},
	};
	struct ibv_qp *qp = ibv_create_qp(device->pd, &attr);

	ck_assert_ptr_nonnull(qp);
	return qp;
}

static void connect_to(const struct device *device, struct ibv_qp *qp, uint32_t peer)
{
	struct ibv_qp_attr init = {
		.qp_state = IBV_QPS_INIT,
		.port_num = device->port,
		.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				   IBV_ACCESS_REMOTE_READ | IBV_ACCESS_MW_BIND,
	};
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = device->mtu,
		.dest_qp_num = peer,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = {.is_global = 1,
			    .port_num = device->port,
			    .grh = {.dgid = device->gid,
				    .sgid_index = device->gid_index,
				    .hop_limit = 64}},
	};
	struct ibv_qp_attr rts = {
		.qp_state = IBV_QPS_RTS,
		.timeout = 16,
		.retry_cnt = 6, /* 7 is for ever on rxe */
		.rnr_retry = 6,
		.max_rd_atomic = 1,
	};

	ck_assert_int_eq(
		ibv_modify_qp(qp, &init,
			      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
		0);
	ck_assert_int_eq(ibv_modify_qp(qp, &rtr,
				       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
					       IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
			 0);
	ck_assert_int_eq(ibv_modify_qp(qp, &rts,
				       IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					       IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
					       IBV_QP_MAX_QP_RD_ATOMIC),
			 0);
}

void link_open_half(struct link *link, struct device *device, uint32_t depth)
{
	link->device = device;
	link->channel = ibv_create_comp_channel(device->context);
	ck_assert_ptr_nonnull(link->channel);
	link->requester_cq = ibv_create_cq(device->context, (int)depth + 1, NULL, link->channel, 0);
	ck_assert_ptr_nonnull(link->requester_cq);
	link->requester = device_qp(device, link->requester_cq, depth);
	link->responder_cq = link->requester_cq;
	link->responder = link->requester;
}

void link_join(struct link *link, uint32_t peer)
{
	connect_to(link->device, link->requester, peer);
}

void link_open(struct link *link, struct device *device, uint32_t depth)
{
	link_open_half(link, device, depth);
	link->responder_cq = ibv_create_cq(device->context, (int)depth + 1, NULL, link->channel, 0);
	ck_assert_ptr_nonnull(link->responder_cq);
	link->responder = device_qp(device, link->responder_cq, depth);
	link_join(link, link->responder->qp_num);
	connect_to(device, link->responder, link->requester->qp_num);
}

void link_close(struct link *link)
{
	ck_assert_int_eq(ibv_destroy_qp(link->requester), 0);
	if (link->responder != link->requester) {
		ck_assert_int_eq(ibv_destroy_qp(link->responder), 0);
		ck_assert_int_eq(ibv_destroy_cq(link->responder_cq), 0);
	}
	ck_assert_int_eq(ibv_destroy_cq(link->requester_cq), 0);
	ck_assert_int_eq(ibv_destroy_comp_channel(link->channel), 0);
}

void link_modify(struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = {.qp_state = state};

	ck_assert_int_eq(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
}

enum ibv_qp_state link_state(struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	ck_assert_int_eq(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
	return attr.qp_state;
}

void memory_open(struct memory *memory, const struct device *device, size_t size, int access)
{
	memory->size = size;
	memory->bytes =
		mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert(memory->bytes != MAP_FAILED);
	memory->mr = ibv_reg_mr(device->pd, memory->bytes, size, access);
	ck_assert_ptr_nonnull(memory->mr);
}

void memory_close(struct memory *memory)
{
	ck_assert_int_eq(ibv_dereg_mr(memory->mr), 0);
	munmap(memory->bytes, memory->size);
}

bool memory_is(const struct memory *memory, size_t offset, size_t size, unsigned char value)
{
	const unsigned char *bytes = memory->bytes + offset;

	return size == 0 || (bytes[0] == value && memcmp(bytes, bytes + 1, size - 1) == 0);
}

int link_write(struct link *link, const struct write *write)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)write->source->bytes,
		.length = write->size,
		.lkey = write->source->mr->lkey,
	};
	struct ibv_send_wr *bad, wr = {
					 .wr_id = write->offset,
					 .sg_list = &sge,
					 .num_sge = 1,
					 .opcode = IBV_WR_RDMA_WRITE,
					 .send_flags = IBV_SEND_SIGNALED,
					 .wr.rdma = {.remote_addr = write->target + write->offset,
						     .rkey = write->rkey},
				 };

	return ibv_post_send(link->requester, &wr, &bad);
}

static void post_at_responder(struct link *link, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;
	struct ibv_wc wc;

	wr->send_flags = IBV_SEND_SIGNALED;
	ck_assert_int_eq(ibv_post_send(link->responder, wr, &bad), 0);
	ck_assert(link_next(link, link->responder_cq, &wc));
	ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
}

void link_bind(struct link *link, struct window *window, const struct memory *memory)
{
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_BIND_MW,
		.bind_mw = {.mw = window->mw,
			    .rkey = ibv_inc_rkey(window->mw->rkey),
			    .bind_info = {.mr = memory->mr,
					  .addr = (uintptr_t)memory->bytes,
					  .length = memory->size,
					  .mw_access_flags = IBV_ACCESS_REMOTE_WRITE}},
	};

	post_at_responder(link, &wr);
	window->rkey = wr.bind_mw.rkey;
	/* The caller keeps mw->rkey current after a Type-2 bind: drivers read it at the next one. */
	window->mw->rkey = window->rkey;
}

void link_invalidate(struct link *link, const struct window *window)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = window->rkey};

	post_at_responder(link, &wr);
}

/* Waits for an event of either CQ; false: none came. */
static bool await_event(struct link *link)
{
	struct pollfd fd = {.fd = link->channel->fd, .events = POLLIN};
	struct ibv_cq *cq;
	void *context;

	if (poll(&fd, 1, WAIT_MS) != 1)
		return false;
	ck_assert_int_eq(ibv_get_cq_event(link->channel, &cq, &context), 0);
	ibv_ack_cq_events(cq, 1);
	return true;
}

bool link_next(struct link *link, struct ibv_cq *cq, struct ibv_wc *wc)
{
	int n = ibv_poll_cq(cq, 1, wc);

	while (n == 0) {
		/* Polled again after arming: what came in between makes no event. */
		ck_assert_int_eq(ibv_req_notify_cq(cq, 0), 0);
		n = ibv_poll_cq(cq, 1, wc);
		if (n == 0 && !await_event(link))
			return false;
	}
	ck_assert_int_eq(n, 1);
	return true;
}
