/* SPDX-License-Identifier: BSD-2-Clause */
/* native.c - the mock's table: its configuration, devices and protection domains. */
#include "backends/mock/mock.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include "backends/mock/packet.h"

static const struct escrow_option options[] = {MOCK_OPTIONS};

struct settings {
	uint64_t rails, contexts, delay, seed, rnr, thread, fail_open;
	bool random;
};

__attribute__((format(printf, 4, 5))) static escrow_status fail(struct escrow_error *error,
								escrow_status status, int code,
								const char *format, ...)
{
	va_list args;

	if (!error)
		return status;
	error->status = status;
	error->sys_errno = code;
	va_start(args, format);
	vsnprintf(error->text, sizeof(error->text), format, args);
	va_end(args);
	return status;
}

static escrow_status read_number(const struct escrow_kv *kv, uint64_t min, uint64_t max,
				 uint64_t *out, struct escrow_error *error)
{
	unsigned long long value;
	char *end;

	errno = 0;
	value = strtoull(kv->value, &end, 10);
	if (errno || *kv->value < '0' || *kv->value > '9' || *end || value < min || value > max)
		return fail(error, ESCROW_E_INVALID, 0, "%s=%s: %llu..%llu is allowed", kv->key,
			    kv->value, (unsigned long long)min, (unsigned long long)max);
	*out = value;
	return ESCROW_OK;
}

static escrow_status read_kv(const struct escrow_kv *kv, struct settings *s,
			     struct escrow_error *error)
{
	const struct {
		const char *key;
		uint64_t min, max, *out;
	} numbers[] = {
		{"mock.rails", 1, NATIVE_MAX_RAILS, &s->rails},
		{"mock.contexts", 1, NATIVE_MAX_CONTEXTS, &s->contexts},
		{"mock.delay", 0, 1000000, &s->delay},
		{"mock.seed", 1, UINT64_MAX, &s->seed},
		{"mock.rnr", 0, 1000000, &s->rnr},
		{"mock.thread", 0, 1, &s->thread},
		{"mock.fail_open", 0, 4095, &s->fail_open},
	};

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		if (strcmp(kv->key, numbers[i].key) == 0)
			return read_number(kv, numbers[i].min, numbers[i].max, numbers[i].out,
					   error);
	if (strcmp(kv->key, "mock.order") != 0)
		return fail(error, ESCROW_E_INVALID, 0, "%s: no such key of the mock", kv->key);
	s->random = strcmp(kv->value, "random") == 0;
	if (!s->random && strcmp(kv->value, "fifo") != 0)
		return fail(error, ESCROW_E_INVALID, 0, "%s=%s: fifo or random is allowed", kv->key,
			    kv->value);
	return ESCROW_OK;
}

static escrow_status read_settings(const struct native_open_args *args, struct settings *s,
				   struct escrow_error *error)
{
	escrow_status status;

	for (uint32_t i = 0; i < args->nkv; i++) {
		status = read_kv(&args->kv[i], s, error);
		if (status)
			return status;
	}
	if (s->contexts > s->rails)
		return fail(error, ESCROW_E_INVALID, 0,
			    "mock.contexts=%llu: at most mock.rails=%llu is allowed",
			    (unsigned long long)s->contexts, (unsigned long long)s->rails);
	if (s->fail_open)
		return fail(error, s->fail_open == ENOMEM ? ESCROW_E_NO_MEMORY : ESCROW_E_DEVICE,
			    (int)s->fail_open, "open fails with errno %llu, as mock.fail_open says",
			    (unsigned long long)s->fail_open);
	return ESCROW_OK;
}

static int native_start(struct native *n)
{
	struct epoll_event event = {.events = EPOLLIN};

	n->packet = mock_alloc(n, PACKET_BYTES);
	if (!n->packet)
		return ENOMEM;
	if (getrandom(n->incarnation, sizeof(n->incarnation), 0) != (ssize_t)sizeof(n->incarnation))
		return errno;
	n->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	n->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (n->epoll_fd < 0 || n->wake_fd < 0 ||
	    epoll_ctl(n->epoll_fd, EPOLL_CTL_ADD, n->wake_fd, &event))
		return errno;
	return 0;
}

static void native_end(struct native *n)
{
	if (n->epoll_fd >= 0)
		close(n->epoll_fd);
	if (n->wake_fd >= 0)
		close(n->wake_fd);
	mock_free(n, n->packet);
	n->host->free(n->host->ctx, n);
}

static escrow_status mock_open(const struct native_open_args *args, struct native **out,
			       struct escrow_error *error)
{
	struct settings s = {.rails = 2, .contexts = 1, .seed = 1, .rnr = 4096, .thread = 1};
	escrow_status status = read_settings(args, &s, error);
	struct native *n;
	int code;

	if (status)
		return status;
	n = args->host->alloc(args->host->ctx, sizeof(*n), 16);
	if (!n)
		return fail(error, ESCROW_E_NO_MEMORY, ENOMEM, "no memory for a mock device");
	memset(n, 0, sizeof(*n));
	n->host = args->host;
	n->nrails = (uint32_t)s.rails;
	n->ncontexts = (uint32_t)s.contexts;
	n->delay = (uint32_t)s.delay;
	n->rnr = (uint32_t)s.rnr;
	n->random = s.random;
	n->may_thread = s.thread;
	n->dice = s.seed;
	n->listen_fd = n->epoll_fd = n->wake_fd = -1;
	for (uint32_t i = 0; i < n->ncontexts; i++) {
		n->contexts[i].native = n;
		n->contexts[i].index = i;
		n->contexts[i].news.event.kind = NATIVE_EV_CONTEXT_FATAL;
		n->contexts[i].news.event.context = i;
	}
	code = native_start(n);
	if (code) {
		native_end(n);
		return fail(error, code == ENOMEM ? ESCROW_E_NO_MEMORY : ESCROW_E_DEVICE, code,
			    "cannot start a mock device: errno %d", code);
	}
	fabric_add(n);
	*out = n;
	return ESCROW_OK;
}

/* Also what a planned lie has left behind: the engine took it for gone. */
static void mock_free_native(struct native *n)
{
	struct native_lane *l;
	struct native_conn *c;

	socket_stop_thread(n);
	fabric_remove(n);
	for (l = n->lanes; l; l = n->lanes) {
		n->lanes = l->next;
		for (c = l->conns; c; c = l->conns) {
			fabric_lock();
			conn_unlink(c);
			fabric_unlock();
			conn_free(c);
		}
		lane_free(l);
	}
	fabric_lock();
	while (n->requests)
		meet_forget(n->requests);
	fabric_unlock();
	for (uint32_t i = 0; i < n->ncontexts; i++)
		memory_free(&n->contexts[i]);
	socket_shut(n);
	native_end(n);
}

static uint32_t mock_ncontexts(const struct native *n)
{
	return n->ncontexts;
}

static uint32_t mock_nrails(const struct native *n)
{
	return n->nrails;
}

static void mock_rail_info(const struct native *n, uint32_t rail, struct native_rail_info *out)
{
	memset(out, 0, sizeof(*out));
	out->context = rail % n->ncontexts;
	out->up = 1;
	out->mtu = MOCK_MTU;
	out->mbps = 100000;
	meet_address(n, rail, out->address);
	snprintf(out->name, sizeof(out->name), "mock%u/1", rail);
}

static int mock_open_device(struct native *n, uint32_t index, struct native_context **out,
			    struct native_context_info *info, struct escrow_error *error)
{
	struct native_context *c = &n->contexts[index];
	int code = index >= n->ncontexts ? ENODEV : c->open ? EBUSY : 0;

	if (!code && n->nopen == 0)
		code = socket_listen(n);
	if (code) {
		fail(error, ESCROW_E_DEVICE, code, "mock device %u: errno %d", index, code);
		return code;
	}
	*info = (struct native_context_info){
		.provider = "mock",
		.max_region_bytes = MOCK_MAX_BYTES,
		.max_message_bytes = MOCK_MAX_MESSAGE,
		.max_window_bytes = MOCK_MAX_WINDOW,
		.max_sge = NATIVE_MAX_SGE,
		.max_send_depth = MOCK_MAX_DEPTH,
		.max_cq_depth = MOCK_MAX_CQ,
		.max_inline = MOCK_MAX_INLINE,
		.max_windows = MOCK_MAX_OBJECTS / 2,
		.max_regions = MOCK_MAX_OBJECTS / 2 - 1,
		.max_connections = MOCK_MAX_CONNS,
		.numa_node = UINT32_MAX,
		.exact_windows = 1,
	};
	snprintf(info->name, sizeof(info->name), "mock%u", index);
	fabric_lock();
	c->open = true;
	n->nopen++;
	fabric_unlock();
	*out = c;
	return 0;
}

static int mock_close_device(struct native_context *c)
{
	struct native *n = c->native;

	fabric_lock();
	if (!c->open || c->pd || c->nlanes) {
		fabric_unlock();
		return EBUSY;
	}
	c->open = false;
	n->nopen--;
	while (n->nopen == 0 && n->requests)
		meet_forget(n->requests);
	fabric_unlock();
	if (n->nopen)
		return 0;
	socket_stop_thread(n);
	socket_shut(n);
	return 0;
}

static int mock_alloc_pd(struct native_context *c)
{
	int error;

	fabric_lock();
	error = !c->open || c->pd ? EINVAL : 0;
	if (!error)
		c->pd = true;
	fabric_unlock();
	return error;
}

static int mock_dealloc_pd(struct native_context *c)
{
	int error;

	fabric_lock();
	error = !c->pd ? EINVAL : c->used || c->nconns ? EBUSY : 0;
	if (!error)
		c->pd = false;
	fabric_unlock();
	return error;
}

const struct native_ops mock_native = {
	.id = "mock",
	.options = options,
	.noptions = sizeof(options) / sizeof(options[0]),
	/* No step sleeps: the engine does them as it is called, so that tests repeat exactly. */
	.control_thread = 0,
	.caps = MOCK_CAPS,
	.open = mock_open,
	.free_native = mock_free_native,
	.ncontexts = mock_ncontexts,
	.nrails = mock_nrails,
	.rail_info = mock_rail_info,
	.open_device = mock_open_device,
	.close_device = mock_close_device,
	.alloc_pd = mock_alloc_pd,
	.dealloc_pd = mock_dealloc_pd,
	.create_channel = mock_create_channel,
	.create_cq = mock_create_cq,
	.destroy_cq = mock_destroy_cq,
	.destroy_channel = mock_destroy_channel,
	.poll_cq = mock_poll_cq,
	.arm_cq = mock_arm_cq,
	.lane_fd = mock_lane_fd,
	.take_wakeups = mock_take_wakeups,
	.register_region = mock_register_region,
	.deregister_region = mock_deregister_region,
	.region_key = mock_region_key,
	.alloc_window = mock_alloc_window,
	.dealloc_window = mock_dealloc_window,
	.window_key = mock_window_key,
	.create_conn = mock_create_conn,
	.conn_user = mock_conn_user,
	.connect = mock_connect,
	.accept = mock_accept,
	.reject = mock_reject,
	.disconnect = mock_disconnect,
	.conn_err = mock_conn_err,
	.conn_reset = mock_conn_reset,
	.destroy_conn = mock_destroy_conn,
	.post = mock_post,
	.post_recv = mock_post_recv,
	.next_event = mock_next_event,
	.event_fd = mock_event_fd,
	.fault = mock_fault,
};
