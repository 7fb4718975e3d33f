/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The rails that a backend would find.  It is asked in a process of its own: one that has never heard
 * of the question may break, and what its libraries keep of a device goes with that process.
 */
#include "config.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "plugin/escrow.h"
#include "tools/info.h"
#include "tools/tool.h"

#define MAX_RAILS 512u

struct answer {
	int32_t n;
	struct escrow_error error;
	struct escrow_rail rails[MAX_RAILS];
};

static void write_all(int fd, const void *from, size_t len)
{
	const char *at = from;

	while (len) {
		ssize_t n = write(fd, at, len);

		if (n < 0)
			_exit(1);
		at += n;
		len -= (size_t)n;
	}
}

static bool read_all(int fd, void *to, size_t len)
{
	char *at = to;

	while (len) {
		ssize_t n = read(fd, at, len);

		if (n == 0 || (n < 0 && errno != EINTR))
			return false;
		if (n > 0) {
			at += n;
			len -= (size_t)n;
		}
	}
	return true;
}

static void ask(struct escrow_module *module, const char *const *settings, struct answer *a)
{
	struct escrow_host_args args = {.size = sizeof(args),
					.module = module,
					.engine_name = "info",
					.settings = settings};

	a->error.size = sizeof(a->error);
	a->n = escrow_rails(&args, a->rails, MAX_RAILS, sizeof(a->rails[0]), &a->error);
}

/* There is no pipe, or no process. */
static struct info_rails *unasked(struct info_rails *found, const int *ends)
{
	found->status = ESCROW_E_AGAIN;
	found->unasked = true;
	g_snprintf(found->text, sizeof(found->text), "no process to ask for its rails in: %s",
		   g_strerror(errno));
	for (int i = 0; i < 2; i++)
		if (ends[i] >= 0)
			close(ends[i]);
	return found;
}

struct info_rails *info_rails_find(struct escrow_module *module, const char *const *settings)
{
	struct answer *a;
	struct info_rails *found = g_new0(struct info_rails, 1);
	int ends[2] = {-1, -1}, got;
	pid_t child;

	if (pipe(ends) || (child = fork()) < 0)
		return unasked(found, ends);
	a = g_new0(struct answer, 1);
	if (!child) {
		ask(module, settings, a);
		write_all(ends[1], a, sizeof(*a));
		_exit(0);
	}
	close(ends[1]);
	got = read_all(ends[0], a, sizeof(*a));
	close(ends[0]);
	waitpid(child, NULL, 0); /* ECHILD where SIGCHLD is ignored: it is gone all the same */
	found->status = got ? MIN(a->n, 0) : ESCROW_E_INTERNAL;
	g_strlcpy(found->text, got ? a->error.text : "it died when it was asked for its rails",
		  sizeof(found->text));
	if (got && a->n > 0) {
		found->n = MIN((uint32_t)a->n, MAX_RAILS);
		found->more = (uint32_t)a->n - found->n;
		found->rails = g_memdup2(a->rails, found->n * sizeof(a->rails[0]));
	}
	g_free(a);
	return found;
}

void info_rails_free(struct info_rails *found)
{
	g_free(found->rails);
	g_free(found);
}

/* ---- For people --------------------------------------------------------------------------------------- */
static const char *state_of(const struct escrow_rail *r)
{
	static const char *const states[] = {"down", "up", "unknown"};

	return r->state < G_N_ELEMENTS(states) ? states[r->state] : "?";
}

static const char *use_of(const struct escrow_rail *r)
{
	static const char *const uses[] = {"unused", "used", "refused"};

	return r->use < G_N_ELEMENTS(uses) ? uses[r->use] : "?";
}

static char *gid_of(const struct escrow_rail *r)
{
	char text[INET6_ADDRSTRLEN];

	if (r->gid_index == UINT32_MAX || !inet_ntop(AF_INET6, r->gid, text, sizeof(text)))
		return NULL;
	return g_strdup(text);
}

static void print_rail(const struct escrow_rail *r)
{
	g_autofree char *number = r->use == ESCROW_RAIL_USED ? g_strdup_printf("rail.%u", r->number)
							     : g_strdup(use_of(r));
	g_autofree char *port = r->port ? g_strdup_printf("%s/%u", r->device, r->port)
					: g_strdup(r->device);
	g_autofree char *gid = gid_of(r);
	g_autofree char *index = gid ? g_strdup_printf("%u", r->gid_index) : g_strdup("-");
	g_autofree char *node = r->numa_node == UINT32_MAX ? g_strdup("-")
							   : g_strdup_printf("%u", r->numa_node);

	printf("    %-8s %-14s %-8s %-8s %-11s %-3s %-24s %-4s %s\n", number, port,
	       *r->provider ? r->provider : "-", state_of(r), *r->type ? r->type : "-", index,
	       gid ? gid : "-", node, *r->address ? r->address : "-");
	if (*r->why)
		printf("    %-8s %s\n", "", r->why);
}

void info_rails_print(const struct info_rails *found)
{
	if (found->status == ESCROW_E_UNSUPPORTED)
		return;
	printf("\n  rails\n");
	if (found->status < 0)
		printf("    cannot be listed: %s\n", found->text);
	else if (!found->n)
		printf("    none: no device\n");
	else
		printf("    %-8s %-14s %-8s %-8s %-11s %-3s %-24s %-4s %s\n", "use", "port",
		       "driver", "state", "type", "GID", "", "NUMA", "address");
	for (uint32_t i = 0; i < found->n; i++)
		print_rail(&found->rails[i]);
	if (found->more)
		printf("    and %u more\n", found->more);
}

static char *used_devices(const struct info_rails *found)
{
	g_autoptr(GString) text = g_string_new(NULL);

	for (uint32_t i = 0; i < found->n; i++) {
		const struct escrow_rail *r = &found->rails[i];

		if (r->use == ESCROW_RAIL_USED)
			g_string_append_printf(text, "%s%s/%u (driver %s)", text->len ? ", " : "",
					       r->device, r->port,
					       *r->provider ? r->provider : "?");
	}
	return g_strdup(text->len ? text->str : "none is used");
}

char *info_rails_devices(struct escrow_module *module, const char *const *settings)
{
	struct info_rails *found = info_rails_find(module, settings);
	char *text;

	if (found->status == ESCROW_E_UNSUPPORTED)
		text = g_strdup("the backend lists none");
	else if (found->status < 0)
		text = g_strdup_printf("not known: %s", found->text);
	else
		text = used_devices(found);
	info_rails_free(found);
	return text;
}

/* ---- For programs ------------------------------------------------------------------------------------- */
/* null where it is not known. */
static void add_known(JsonBuilder *json, const char *member, uint32_t value)
{
	json_add_number(json, member, value == UINT32_MAX ? UINT64_MAX : value);
}

static void add_text(JsonBuilder *json, const char *member, const char *text)
{
	if (text && *text) {
		json_add_string(json, member, text);
		return;
	}
	json_builder_set_member_name(json, member);
	json_builder_add_null_value(json);
}

static void add_rail(JsonBuilder *json, const struct escrow_rail *r)
{
	g_autofree char *gid = gid_of(r);

	json_builder_begin_object(json);
	json_add_string(json, "use", use_of(r));
	add_known(json, "number", r->number);
	json_add_string(json, "device", r->device);
	add_text(json, "driver", r->provider);
	add_known(json, "port", r->port ? r->port : UINT32_MAX);
	json_add_string(json, "state", state_of(r));
	add_text(json, "type", r->type);
	add_known(json, "gid_index", r->gid_index);
	add_text(json, "gid", gid);
	add_text(json, "address", r->address);
	add_known(json, "numa_node", r->numa_node);
	add_known(json, "mtu", r->mtu ? r->mtu : UINT32_MAX);
	add_text(json, "why", r->why);
	json_builder_end_object(json);
}

void info_rails_add(JsonBuilder *json, const struct info_rails *found)
{
	if (found->status == ESCROW_E_UNSUPPORTED)
		return;
	if (found->status < 0) {
		json_add_string(json, "rails_error", found->text);
		return;
	}
	json_builder_set_member_name(json, "rails");
	json_builder_begin_array(json);
	for (uint32_t i = 0; i < found->n; i++)
		add_rail(json, &found->rails[i]);
	json_builder_end_array(json);
}
