/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What `escrow bench --baseline raw` compares the RDMA backend with: the same load (tools/bench-load.h)
 * on bare verbs.  As many queue pairs, each with a completion queue; as deep; every work request
 * signalled, as every op of the ABI has its event; a plain registration, no windows, no slices, no
 * ledger.
 *
 * The tool is at descriptor 3.  It tells struct bench_raw_args; this answers where its queue pairs are
 * (struct end), hears where those of the other end are, connects, and says so.  Then it answers struct
 * bench_work with struct bench_result until the channel is closed.
 */
#include "config.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <infiniband/verbs.h>

#include "tools/bench.h"
#include "tools/tool.h"

#define MOST_QPS 256u
#define MOST_RAILS 16u
#define POLL 32
/* As the backend has them, escrow-rdma(7). */
#define RD_ATOMIC 16
#define TIMEOUT 16
#define RETRY 6

struct place {
	union ibv_gid gid;
	uint32_t qpn, rkey, mtu;
	uint16_t lid;
};

struct end {
	uint64_t addr;
	uint32_t nqps;
	struct place places[MOST_QPS];
};

struct rail {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_port_attr attr;
	union ibv_gid gid;
	uint8_t port, gid_index;
};

struct lane {
	struct rail *rail;
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	_Atomic uint32_t under_way;
};

struct thread {
	uint32_t next; /* lane */
	struct ibv_send_wr wr[BENCH_MAX_BATCH];
	struct ibv_sge sge[BENCH_MAX_BATCH];
};

static struct {
	uint8_t *memory;
	uint64_t bytes;
	uint32_t depth;
	struct rail rails[MOST_RAILS];
	uint32_t nrails;
	struct lane lanes[MOST_QPS];
	uint32_t nlanes, next;
	struct thread threads[BENCH_MAX_THREADS];
	struct end here, there;
} raw;

void tool_complain(const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	fputs("escrow-bench-raw: ", stderr);
	vfprintf(stderr, format, ap);
	fputc('\n', stderr);
	va_end(ap);
}

static bool failed(const char *call, int error)
{
	tool_complain("%s: %s", call, strerror(error));
	return false;
}

/* ---- Rails: one a port, an IPv4 address before others, as the backend chooses -------------------------- */
static bool good_gid(const struct ibv_gid_entry *e, bool v4)
{
	static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

	return e->gid_type != IBV_GID_TYPE_ROCE_V1 && (memcmp(e->gid.raw, mapped, 12) == 0) == v4;
}

static bool find_gid(struct rail *r)
{
	struct ibv_gid_entry e;

	for (int v4 = 1; v4 >= 0; v4--)
		for (int i = 0; i < r->attr.gid_tbl_len; i++) {
			if (ibv_query_gid_ex(r->context, r->port, (uint32_t)i, &e, 0) ||
			    !good_gid(&e, v4))
				continue;
			r->gid = e.gid;
			r->gid_index = (uint8_t)i;
			return true;
		}
	return false;
}

/* DEVICE or DEVICE:PORT..., comma-separated; empty names all. */
static bool named(const char *list, const char *device, unsigned port)
{
	g_auto(GStrv) all = g_strsplit(list, ",", -1);

	for (char **one = all; *one; one++) {
		g_auto(GStrv) parts = g_strsplit(*one, ":", 3);

		if (!strcmp(parts[0], device) &&
		    (!parts[1] || (unsigned)strtoul(parts[1], NULL, 10) == port))
			return true;
	}
	return !*all;
}

static bool add_rail(struct ibv_device *device, uint8_t port)
{
	struct rail *r = &raw.rails[raw.nrails];

	r->port = port;
	r->context = ibv_open_device(device);
	if (!r->context)
		return false;
	if (!ibv_query_port(r->context, port, &r->attr) && r->attr.state == IBV_PORT_ACTIVE &&
	    find_gid(r)) {
		r->pd = ibv_alloc_pd(r->context);
		r->mr = r->pd ? ibv_reg_mr(r->pd, raw.memory, raw.bytes,
					   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
						   IBV_ACCESS_REMOTE_WRITE)
			      : NULL;
		if (r->mr) {
			raw.nrails++;
			return true;
		}
	}
	ibv_close_device(r->context);
	return false;
}

static bool find_rails(uint32_t most, const char *devices)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_device_attr attr;

	for (int i = 0; list && list[i]; i++) {
		struct ibv_context *context = ibv_open_device(list[i]);
		uint8_t ports = 0;

		if (context && !ibv_query_device(context, &attr))
			ports = attr.phys_port_cnt;
		if (context)
			ibv_close_device(context);
		for (uint8_t p = 1; p <= ports && raw.nrails < most; p++)
			if (named(devices, ibv_get_device_name(list[i]), p))
				add_rail(list[i], p);
	}
	if (list)
		ibv_free_device_list(list);
	if (!raw.nrails)
		tool_complain("no active port with a RoCEv2 or InfiniBand address");
	return raw.nrails != 0;
}

/* ---- Queue pairs ------------------------------------------------------------------------------------------- */
static bool make_lane(uint32_t number)
{
	struct lane *l = &raw.lanes[number];
	struct rail *r = &raw.rails[number % raw.nrails];
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = raw.depth, .max_send_sge = 1, .max_recv_sge = 1}};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
				   .port_num = r->port,
				   .qp_access_flags = IBV_ACCESS_REMOTE_READ |
						      IBV_ACCESS_REMOTE_WRITE};

	l->rail = r;
	l->cq = ibv_create_cq(r->context, (int)raw.depth, NULL, NULL, 0);
	init.send_cq = init.recv_cq = l->cq;
	l->qp = l->cq ? ibv_create_qp(r->pd, &init) : NULL;
	if (!l->qp)
		return failed("ibv_create_qp", errno);
	if (ibv_modify_qp(l->qp, &attr,
			  IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		return failed("ibv_modify_qp to INIT", errno);
	raw.here.places[number] = (struct place){.gid = r->gid,
						 .qpn = l->qp->qp_num,
						 .rkey = r->mr->rkey,
						 .mtu = r->attr.active_mtu,
						 .lid = r->attr.lid};
	return true;
}

static bool connect_lane(uint32_t number)
{
	struct lane *l = &raw.lanes[number];
	const struct place *to = &raw.there.places[number];
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR,
				   .path_mtu =
					   (enum ibv_mtu)MIN(to->mtu, raw.here.places[number].mtu),
				   .dest_qp_num = to->qpn,
				   .max_dest_rd_atomic = RD_ATOMIC,
				   .min_rnr_timer = 12,
				   .ah_attr = {.is_global = 1,
					       .port_num = l->rail->port,
					       .dlid = to->lid,
					       .grh = {.dgid = to->gid,
						       .sgid_index = l->rail->gid_index,
						       .hop_limit = 64}}};

	if (ibv_modify_qp(l->qp, &attr,
			  IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				  IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		return failed("ibv_modify_qp to RTR", errno);
	attr.qp_state = IBV_QPS_RTS;
	attr.max_rd_atomic = RD_ATOMIC;
	attr.timeout = TIMEOUT;
	attr.retry_cnt = attr.rnr_retry = RETRY;
	if (ibv_modify_qp(l->qp, &attr,
			  IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_TIMEOUT |
				  IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY))
		return failed("ibv_modify_qp to RTS", errno);
	return true;
}

/* ---- The mover ---------------------------------------------------------------------------------------------- */
/* A batch is a chain on one queue pair; the next batch goes to the next one. */
static int submit(void *ctx, uint32_t thread, const struct bench_op *ops, uint32_t n)
{
	struct thread *t = &raw.threads[thread];
	uint32_t number = (thread + t->next) % raw.nlanes;
	struct lane *l = &raw.lanes[number];
	uint32_t before = atomic_fetch_add(&l->under_way, n), room;
	struct ibv_send_wr *bad;
	int rc;

	(void)ctx;
	room = before < raw.depth ? raw.depth - before : 0;
	if (n > room) {
		atomic_fetch_sub(&l->under_way, n - room);
		n = room;
	}
	if (!n)
		return 0;
	t->next++;
	for (uint32_t i = 0; i < n; i++) {
		struct ibv_send_wr *wr = &t->wr[i];

		t->sge[i] = (struct ibv_sge){.addr = (uintptr_t)raw.memory + ops[i].offset,
					     .length = (uint32_t)ops[i].size,
					     .lkey = l->rail->mr->lkey};
		wr->wr_id = ops[i].slot;
		wr->opcode = ops[i].write ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
		wr->send_flags = IBV_SEND_SIGNALED;
		wr->sg_list = &t->sge[i];
		wr->num_sge = 1;
		wr->wr.rdma.remote_addr = raw.there.addr + ops[i].offset;
		wr->wr.rdma.rkey = raw.there.places[number].rkey;
		wr->next = i + 1 < n ? wr + 1 : NULL;
	}
	rc = ibv_post_send(l->qp, t->wr, &bad);
	if (!rc)
		return (int)n;
	failed("ibv_post_send", rc);
	return -1;
}

/* What has ended on one queue pair, at most POLL; < 0: it failed. */
static int reap_lane(struct lane *l, struct bench_done *done)
{
	struct ibv_wc wc[POLL];
	int n = ibv_poll_cq(l->cq, POLL, wc);

	if (n < 0)
		tool_complain("ibv_poll_cq failed");
	for (int i = 0; i < n; i++) {
		if (wc[i].status != IBV_WC_SUCCESS) {
			tool_complain("completion: %s", ibv_wc_status_str(wc[i].status));
			return -1;
		}
		done[i] = (struct bench_done){(uint32_t)wc[i].wr_id, 1};
	}
	if (n > 0)
		atomic_fetch_sub(&l->under_way, (uint32_t)n);
	return n;
}

/* One after the other; one that has nothing under way is not looked at. */
static int reap(void *ctx, struct bench_done *done)
{
	int found = 0;

	(void)ctx;
	for (uint32_t i = 0; i < raw.nlanes && found + POLL <= (int)BENCH_REAP; i++) {
		struct lane *l = &raw.lanes[raw.next];
		int n = 0;

		raw.next = raw.next + 1 < raw.nlanes ? raw.next + 1 : 0;
		if (atomic_load_explicit(&l->under_way, memory_order_relaxed))
			n = reap_lane(l, done + found);
		if (n < 0)
			return -1;
		found += n;
	}
	return found;
}

/* ---- The tool's end ------------------------------------------------------------------------------------------ */
static bool open_here(const struct bench_raw_args *args)
{
	raw.nlanes = CLAMP(args->connections, 1, MOST_QPS);
	raw.depth = CLAMP(args->depth, 1, 16384);
	raw.bytes = args->bytes;
	raw.memory = mmap(NULL, raw.bytes, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | (args->hugepages ? MAP_HUGETLB : 0), -1, 0);
	if (raw.memory == MAP_FAILED)
		return failed("memory", errno);
	memset(raw.memory, 1, raw.bytes);
	if (!find_rails(args->rails ? MIN(args->rails, MOST_RAILS) : MOST_RAILS, args->devices))
		return false;
	raw.here.addr = (uintptr_t)raw.memory;
	raw.here.nqps = raw.nlanes;
	for (uint32_t i = 0; i < raw.nlanes; i++)
		if (!make_lane(i))
			return false;
	return true;
}

static bool begin(struct demo_message *m)
{
	struct bench_raw_args args;

	if (demo_await(DEMO_CHANNEL_FD, m) < 0 || m->len != sizeof(args))
		return false;
	memcpy(&args, m->bytes, sizeof(args));
	args.devices[sizeof(args.devices) - 1] = 0;
	return open_here(&args);
}

static bool meet(struct demo_message *m)
{
	if (!demo_send(DEMO_CHANNEL_FD, DEMO_BASELINE, 0, &raw.here, sizeof(raw.here)) ||
	    demo_await(DEMO_CHANNEL_FD, m) < 0 || m->len != sizeof(raw.there))
		return false;
	memcpy(&raw.there, m->bytes, sizeof(raw.there));
	if (raw.there.nqps != raw.nlanes) {
		tool_complain("%u queue pairs here, %u at the other end", raw.nlanes,
			      raw.there.nqps);
		return false;
	}
	for (uint32_t i = 0; i < raw.nlanes; i++)
		if (!connect_lane(i))
			return false;
	return demo_send(DEMO_CHANNEL_FD, DEMO_BASELINE, 0, NULL, 0);
}

static bool answer(const struct demo_message *m)
{
	const struct bench_mover mover = {.submit = submit, .reap = reap};
	g_autofree struct bench_result *result = g_new0(struct bench_result, 1);
	struct bench_work work;

	if (m->len != sizeof(work))
		return false;
	memcpy(&work, m->bytes, sizeof(work));
	return bench_load(&work, &mover, result) &&
	       demo_send(DEMO_CHANNEL_FD, DEMO_BASELINE, 0, result, sizeof(*result));
}

int main(int argc, char **argv)
{
	g_autofree struct demo_message *m = g_new0(struct demo_message, 1);

	(void)argv;
	if (argc != 1) {
		tool_complain("escrow bench --baseline raw starts this, without arguments");
		return TOOL_TROUBLE;
	}
	if (!begin(m) || !meet(m))
		return TOOL_NO;
	while (demo_await(DEMO_CHANNEL_FD, m) > 0)
		if (!answer(m))
			return TOOL_NO;
	return TOOL_OK;
}
