/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The load of ./dev bench by libfabric, on its verbs provider with message endpoints: fi_write and fi_read, a completion
 * for each, so many under way.
 *
 *	fabric write|read PORT BYTES DEPTH OPS [ADDRESS [PAUSE_MS]]
 *
 * Without ADDRESS: the end whose memory is written or read.  It listens for the connection, and then on TCP PORT, which
 * is also how it learns that all is over.  The other prints one line: bytes, ops, seconds, and, of DEPTH 1, the median
 * time in us from one completion to the next, as lone does.  After the connection nothing but RMA passes.  PAUSE_MS waits so long before
 * each look at the completions, for callgrind: looks in vain would count.
 */
#include "config.h"

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <arpa/inet.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include "tests/bench/clock.h"

#define MOST_DEPTH 1024u
#define WAIT_MS 60000

/* What the end with the memory says when it accepts. */
struct place {
	uint64_t addr, key;
};

static struct {
	bool write;
	const char *port, *address;
	uint64_t bytes, depth, ops;
	long pause_ms;

	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_eq *eq;
	struct fid_domain *domain;
	struct fid_mr *mr;
	struct fid_cq *cq;
	struct fid_ep *ep;
	char *memory; /* a block for each op under way */
	void *desc;
	struct place there;
	struct fi_context2 contexts[MOST_DEPTH];
	uint32_t free_slots[MOST_DEPTH], nfree;
	uint64_t last_ns; /* when the last completions were taken */
	uint64_t *took_ns;
} f;

static void check(const char *what, long rc)
{
	if (rc >= 0)
		return;
	fprintf(stderr, "fabric: %s: %s\n", what, fi_strerror((int)-rc));
	exit(1);
}

/* ---- Both ends ------------------------------------------------------------------------------------------ */
static void find(void)
{
	struct fi_info *hints = fi_allocinfo();

	hints->fabric_attr->prov_name = strdup("verbs");
	hints->ep_attr->type = FI_EP_MSG;
	hints->caps = FI_MSG | FI_RMA;
	hints->mode = FI_CONTEXT | FI_CONTEXT2;
	hints->addr_format = FI_SOCKADDR_IN;
	hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED |
				      FI_MR_PROV_KEY;
	hints->tx_attr->size = f.depth;
	check("fi_getinfo", fi_getinfo(FI_VERSION(1, 14), f.address, f.port,
				       f.address ? 0 : FI_SOURCE, hints, &f.info));
	fi_freeinfo(hints);
	check("fi_fabric", fi_fabric(f.info->fabric_attr, &f.fabric, NULL));
	check("fi_eq_open",
	      fi_eq_open(f.fabric, &(struct fi_eq_attr){.wait_obj = FI_WAIT_UNSPEC}, &f.eq, NULL));
}

static void open_endpoint(struct fi_info *info)
{
	struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_CONTEXT, .size = f.depth + 1};
	uint64_t access = f.write ? FI_WRITE | FI_REMOTE_WRITE : FI_READ | FI_REMOTE_READ;

	check("fi_domain", fi_domain(f.fabric, info, &f.domain, NULL));
	f.memory = aligned_alloc(4096, (f.bytes * f.depth + 4095) / 4096 * 4096);
	if (!f.memory)
		check("memory", -FI_ENOMEM);
	memset(f.memory, 1, f.bytes * f.depth);
	check("fi_mr_reg",
	      fi_mr_reg(f.domain, f.memory, f.bytes * f.depth, access, 0, 0, 0, &f.mr, NULL));
	f.desc = fi_mr_desc(f.mr);
	check("fi_cq_open", fi_cq_open(f.domain, &cq, &f.cq, NULL));
	check("fi_endpoint", fi_endpoint(f.domain, info, &f.ep, NULL));
	check("fi_ep_bind", fi_ep_bind(f.ep, &f.eq->fid, 0));
	check("fi_ep_bind", fi_ep_bind(f.ep, &f.cq->fid, FI_TRANSMIT | FI_RECV));
	check("fi_enable", fi_enable(f.ep));
}

/* The next event of connections must be this one; what came with it. */
static struct fi_info *expect(uint32_t want, struct place *place)
{
	union {
		struct fi_eq_cm_entry entry;
		char room[sizeof(struct fi_eq_cm_entry) + 256];
	} u;
	uint32_t event = 0;
	ssize_t n = fi_eq_sread(f.eq, &event, &u, sizeof(u), WAIT_MS, 0);

	if (n < 0 || event != want) {
		fprintf(stderr, "fabric: event %u, not %u: %s\n", event, want,
			n < 0 ? fi_strerror((int)-n) : "another");
		exit(1);
	}
	if (place)
		memcpy(place, u.entry.data, sizeof(*place));
	return u.entry.info;
}

static void close_all(void)
{
	fi_close(&f.ep->fid);
	fi_close(&f.cq->fid);
	fi_close(&f.mr->fid);
	fi_close(&f.domain->fid);
	fi_close(&f.eq->fid);
	fi_close(&f.fabric->fid);
	fi_freeinfo(f.info);
	free(f.memory);
}

/* ---- The end with the memory ------------------------------------------------------------------------------ */
static int listen_tcp(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET,
				 .sin_port = htons((uint16_t)strtoul(f.port, NULL, 10))};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) ||
	    bind(fd, (struct sockaddr *)&at, sizeof(at)) || listen(fd, 1)) {
		perror("fabric: listen");
		exit(1);
	}
	return fd;
}

static void lend(void)
{
	struct place here;
	struct fid_pep *pep;
	struct fi_info *request;
	char byte;
	int tcp, end;

	find();
	check("fi_passive_ep", fi_passive_ep(f.fabric, f.info, &pep, NULL));
	check("fi_pep_bind", fi_pep_bind(pep, &f.eq->fid, 0));
	check("fi_listen", fi_listen(pep));
	tcp = listen_tcp();
	request = expect(FI_CONNREQ, NULL);
	open_endpoint(request);
	here = (struct place){.addr = (uintptr_t)f.memory, .key = fi_mr_key(f.mr)};
	check("fi_accept", fi_accept(f.ep, &here, sizeof(here)));
	expect(FI_CONNECTED, NULL);
	end = accept(tcp, NULL, NULL);
	while (end >= 0 && read(end, &byte, 1) > 0)
		;
	fi_freeinfo(request);
	fi_close(&pep->fid);
	close_all();
}

/* ---- The end that moves ------------------------------------------------------------------------------------- */
/* Alone in functions of their own: what callgrind counts (docs/performance.md). */
__attribute__((noinline)) static ssize_t rma_post(uint32_t slot)
{
	uint64_t at = f.bytes * slot;
	void *context = &f.contexts[slot];

	return f.write ? fi_write(f.ep, f.memory + at, f.bytes, f.desc, 0, f.there.addr + at,
				  f.there.key, context)
		       : fi_read(f.ep, f.memory + at, f.bytes, f.desc, 0, f.there.addr + at,
				 f.there.key, context);
}

__attribute__((noinline)) static ssize_t rma_reap(struct fi_cq_entry *entries, size_t max)
{
	return fi_cq_read(f.cq, entries, max);
}

static bool post(void)
{
	uint32_t slot = f.free_slots[f.nfree - 1];
	ssize_t rc;

	rc = rma_post(slot);
	if (rc == -FI_EAGAIN)
		return false;
	check(f.write ? "fi_write" : "fi_read", rc);
	f.nfree--;
	return true;
}

static uint64_t reap(uint64_t done)
{
	struct fi_cq_entry entries[32];
	ssize_t n = rma_reap(entries, 32);
	uint64_t at;

	if (n == -FI_EAGAIN)
		return 0;
	check("fi_cq_read", n);
	at = now();
	for (ssize_t i = 0; i < n; i++) {
		uint32_t slot =
			(uint32_t)((struct fi_context2 *)entries[i].op_context - f.contexts);

		f.took_ns[done + (uint64_t)i] = at - f.last_ns;
		f.free_slots[f.nfree++] = slot;
	}
	f.last_ns = at;
	return (uint64_t)n;
}

static void move(uint64_t ops)
{
	const struct timespec pause = {.tv_nsec = f.pause_ms * 1000000L};
	uint64_t posted = 0, done = 0;

	while (done < ops) {
		while (posted < ops && f.nfree && post())
			posted++;
		if (f.pause_ms)
			nanosleep(&pause, NULL); /* house: see PAUSE_MS */
		done += reap(done);
	}
}

static int connect_tcp(void)
{
	struct sockaddr_in to = {.sin_family = AF_INET,
				 .sin_port = htons((uint16_t)strtoul(f.port, NULL, 10))};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || inet_pton(AF_INET, f.address, &to.sin_addr) != 1 ||
	    connect(fd, (struct sockaddr *)&to, sizeof(to))) {
		perror("fabric: connect");
		exit(1);
	}
	return fd;
}

static void request(void)
{
	uint64_t begin, took;
	int tcp;

	find();
	open_endpoint(f.info);
	check("fi_connect", fi_connect(f.ep, f.info->dest_addr, NULL, 0));
	expect(FI_CONNECTED, &f.there);
	tcp = connect_tcp();
	for (uint32_t i = 0; i < f.depth; i++)
		f.free_slots[f.nfree++] = i;
	f.took_ns = calloc(f.ops, sizeof(*f.took_ns));
	if (!f.took_ns)
		check("memory", -FI_ENOMEM);
	move(f.depth < f.ops ? f.depth : f.ops); /* every block once */
	begin = f.last_ns = now();
	move(f.ops);
	took = now() - begin;
	printf("%llu %llu %.9f %.3f\n", (unsigned long long)f.bytes, (unsigned long long)f.ops,
	       (double)took / 1e9, (double)median(f.took_ns, f.ops) / 1e3);
	close(tcp);
	free(f.took_ns);
	close_all();
}

int main(int argc, char **argv)
{
	if (argc < 6 || argc > 8 || (strcmp(argv[1], "write") && strcmp(argv[1], "read"))) {
		fputs("usage: fabric write|read PORT BYTES DEPTH OPS [ADDRESS [PAUSE_MS]]\n",
		      stderr);
		return 2;
	}
	f.write = argv[1][0] == 'w';
	f.port = argv[2];
	f.bytes = strtoull(argv[3], NULL, 10);
	f.depth = strtoull(argv[4], NULL, 10);
	f.ops = strtoull(argv[5], NULL, 10);
	f.address = argc > 6 ? argv[6] : NULL;
	f.pause_ms = argc > 7 ? strtol(argv[7], NULL, 10) : 0;
	if (!f.bytes || !f.depth || f.depth > MOST_DEPTH || !f.ops) {
		fputs("fabric: BYTES, OPS from 1, DEPTH 1 to 1024\n", stderr);
		return 2;
	}
	if (f.address)
		request();
	else
		lend();
	return 0;
}
