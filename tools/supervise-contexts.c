/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the kernel's own list of RDMA contexts says.  A context is one open device file, and stands in the
 * list until all that was made through it is destroyed, whoever holds the file by then.
 */
#include "config.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/netlink.h>
#include <rdma/rdma_netlink.h> /* house: not verbs: the kernel's list of who uses them */

#include "tools/supervise.h"

#define PATIENCE_S 10
#define NO_PID 0u

struct answer {
	guint32 device, context, pid;
};

/* Calls each attribute of a message or of a nest, with its payload. */
static void each_attr(const void *at, size_t len,
		      void (*each)(guint16, const void *, size_t, void *), void *ctx)
{
	const guint8 *p = at;

	while (len >= NLA_HDRLEN) {
		const struct nlattr *a = (const void *)p;
		size_t step = NLA_ALIGN(a->nla_len);

		if (a->nla_len < NLA_HDRLEN || a->nla_len > len)
			return;
		each(a->nla_type & NLA_TYPE_MASK, p + NLA_HDRLEN, a->nla_len - NLA_HDRLEN, ctx);
		if (step >= len)
			return;
		p += step;
		len -= step;
	}
}

static guint32 u32_of(const void *payload, size_t len)
{
	guint32 value = 0;

	memcpy(&value, payload, MIN(len, sizeof(value)));
	return value;
}

/* ---- The answers ------------------------------------------------------------------------------------ */
struct listing {
	GArray *devices;  /* guint32 */
	GArray *contexts; /* struct answer */
	struct answer now;
};

static void on_entry(guint16 type, const void *payload, size_t len, void *ctx)
{
	struct listing *l = ctx;

	if (type == RDMA_NLDEV_ATTR_RES_CTXN)
		l->now.context = u32_of(payload, len);
	else if (type == RDMA_NLDEV_ATTR_RES_PID)
		l->now.pid = u32_of(payload, len);
}

static void on_nest(guint16 type, const void *payload, size_t len, void *ctx)
{
	struct listing *l = ctx;

	if (type != RDMA_NLDEV_ATTR_RES_CTX_ENTRY)
		return;
	l->now.context = 0;
	l->now.pid = NO_PID; /* the kernel does not tell that of a dead process */
	each_attr(payload, len, on_entry, l);
	g_array_append_val(l->contexts, l->now);
}

static void on_attr(guint16 type, const void *payload, size_t len, void *ctx)
{
	struct listing *l = ctx;

	if (type == RDMA_NLDEV_ATTR_DEV_INDEX)
		l->now.device = u32_of(payload, len);
	else if (type == RDMA_NLDEV_ATTR_RES_CTX)
		each_attr(payload, len, on_nest, l);
}

static void on_device(guint16 type, const void *payload, size_t len, void *ctx)
{
	struct listing *l = ctx;
	guint32 index = u32_of(payload, len);

	if (type == RDMA_NLDEV_ATTR_DEV_INDEX)
		g_array_append_val(l->devices, index);
}

/* ---- The questions ----------------------------------------------------------------------------------- */
static bool ask(int fd, guint16 command, const guint32 *device)
{
	struct {
		struct nlmsghdr header;
		struct nlattr attr;
		guint32 device;
	} question = {
		.header = {.nlmsg_len = sizeof(question.header),
			   .nlmsg_type = RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command),
			   .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
		.attr = {.nla_len = sizeof(question.attr) + sizeof(guint32),
			 .nla_type = RDMA_NLDEV_ATTR_DEV_INDEX},
	};

	if (device) {
		question.header.nlmsg_len = sizeof(question);
		question.device = *device;
	}
	return send(fd, &question, question.header.nlmsg_len, 0) ==
	       (ssize_t)question.header.nlmsg_len;
}

/* 0: more will come, 1: that was all, or -errno. */
static int take(struct nlmsghdr *m, size_t len, void (*each)(guint16, const void *, size_t, void *),
		struct listing *l)
{
	for (; NLMSG_OK(m, len); m = NLMSG_NEXT(m, len)) {
		int e = 0;

		if (m->nlmsg_type == NLMSG_DONE || m->nlmsg_type == NLMSG_ERROR) {
			if (m->nlmsg_len >= NLMSG_LENGTH(sizeof(e)))
				memcpy(&e, NLMSG_DATA(m), sizeof(e));
			return e < 0 ? e : 1;
		}
		each_attr(NLMSG_DATA(m), m->nlmsg_len - NLMSG_HDRLEN, each, l);
	}
	return 0;
}

static int dump(int fd, guint16 command, const guint32 *device,
		void (*each)(guint16, const void *, size_t, void *), struct listing *l)
{
	static guint32 room[16384];
	int end = 0;

	if (!ask(fd, command, device))
		return -errno;
	while (!end) {
		ssize_t n = recv(fd, room, sizeof(room), 0);

		if (n <= 0)
			return n ? -errno : -EPIPE;
		end = take((void *)room, (size_t)n, each, l);
	}
	return end < 0 ? end : 0;
}

/* All contexts of all devices; 0, or -errno. -EPROTONOSUPPORT: the kernel has no RDMA at all. */
static int list(struct listing *l)
{
	struct timeval patience = {.tv_sec = PATIENCE_S};
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_RDMA);
	int rc;

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	rc = dump(fd, RDMA_NLDEV_CMD_GET, NULL, on_device, l);
	for (guint i = 0; !rc && i < l->devices->len; i++)
		rc = dump(fd, RDMA_NLDEV_CMD_RES_CTX_GET, &g_array_index(l->devices, guint32, i),
			  on_attr, l);
	close(fd);
	return rc;
}

/* ---- What the supervisor keeps ------------------------------------------------------------------------ */
struct contexts {
	GArray *ours; /* struct answer */
	int error;    /* positive errno of a listing that did not work; 0: all did */
};

struct contexts *contexts_new(void)
{
	struct contexts *c = g_new0(struct contexts, 1);

	c->ours = g_array_new(FALSE, FALSE, sizeof(struct answer));
	return c;
}

void contexts_free(struct contexts *c)
{
	g_array_unref(c->ours);
	g_free(c);
}

static bool same(const struct answer *a, const struct answer *b)
{
	return a->device == b->device && a->context == b->context;
}

static bool is_ours(const struct contexts *c, const struct answer *a)
{
	for (guint i = 0; i < c->ours->len; i++)
		if (same(&g_array_index(c->ours, struct answer, i), a))
			return true;
	return false;
}

/* Lists, and calls each of what there is; a kernel without RDMA has none.  False: not all could be listed. */
static bool look(struct contexts *c,
		 void (*each)(struct contexts *, const struct answer *, guint *), guint *count)
{
	g_autoptr(GArray) devices = g_array_new(FALSE, FALSE, sizeof(guint32));
	g_autoptr(GArray) contexts = g_array_new(FALSE, FALSE, sizeof(struct answer));
	struct listing l = {.devices = devices, .contexts = contexts};
	int rc = list(&l);

	if (rc && rc != -EPROTONOSUPPORT)
		c->error = -rc;
	for (guint i = 0; i < contexts->len; i++)
		each(c, &g_array_index(contexts, struct answer, i), count);
	return !rc;
}

static void note(struct contexts *c, const struct answer *a, guint *count)
{
	(void)count;
	if (a->pid != NO_PID && !is_ours(c, a) && tree_has((pid_t)a->pid))
		g_array_append_val(c->ours, *a);
}

static void count_left(struct contexts *c, const struct answer *a, guint *count)
{
	*count += is_ours(c, a);
}

void contexts_note(struct contexts *c)
{
	look(c, note, NULL);
}

guint contexts_left(struct contexts *c)
{
	guint left = 0;

	/* What was listed once and cannot be listed now may still be there. */
	if (c->ours->len && !look(c, count_left, &left) && !left)
		left = 1;
	return left;
}

char *contexts_text(const struct contexts *c)
{
	if (c->error)
		return g_strdup_printf("every process is reaped; device contexts that others may "
				       "hold could not be listed (%s)",
				       g_strerror(c->error));
	return g_strdup_printf("every process is reaped, and the kernel lists none of their %u "
			       "device contexts",
			       c->ours->len);
}
