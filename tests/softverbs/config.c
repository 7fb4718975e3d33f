/* SPDX-License-Identifier: BSD-2-Clause */
/* The environment that steers softverbs; docs/softverbs.md lists it. */
#include "tests/softverbs/base.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static struct config config_values;
static pthread_once_t config_once = PTHREAD_ONCE_INIT;

static long config_number(const char *name, long low, long high, long fallback)
{
	const char *text = getenv(name);
	char *end = NULL;
	long value;

	if (!text || !*text)
		return fallback;
	errno = 0;
	value = strtol(text, &end, 0);
	if (errno || *end || value < low || value > high) {
		fprintf(stderr, "softverbs: %s=%s: must be a number from %ld to %ld\n", name, text,
			low, high);
		exit(2);
	}
	return value;
}

/* The same test rdma-core makes (its check_env): set, and not "0". */
static bool config_switch(const char *name)
{
	const char *text = getenv(name);

	return text && strcmp(text, "0") != 0;
}

static void config_personality(struct config *c)
{
	static const char *const names[] = {"mlx5", "rxe", "siw", "old-kernel", "irdma", "ocrdma"};
	const char *text = getenv("SOFTVERBS_PERSONALITY");
	unsigned int i;

	if (!text || !*text)
		return;
	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (strcmp(text, names[i]) == 0) {
			c->personality = (enum personality)i;
			return;
		}
	}
	fprintf(stderr,
		"softverbs: SOFTVERBS_PERSONALITY=%s: mlx5, rxe, siw, old-kernel, irdma or "
		"ocrdma\n",
		text);
	exit(2);
}

/* SOFTVERBS_ADDRS: IPv4 addresses, one per rail, separated by commas. */
static void config_addresses(struct config *c)
{
	const char *text = getenv("SOFTVERBS_ADDRS");
	char one[32];
	int rail;

	for (rail = 0; rail < RAILS_MAX; rail++)
		c->addr[rail].s_addr = htonl(0x7f4d0001u | ((uint32_t)rail << 8));
	for (rail = 0; text && *text && rail < RAILS_MAX; rail++) {
		size_t len = strcspn(text, ",");

		snprintf(one, sizeof(one), "%.*s", (int)len, text);
		if (inet_pton(AF_INET, one, &c->addr[rail]) != 1) {
			fprintf(stderr, "softverbs: SOFTVERBS_ADDRS: '%s' is no IPv4 address\n",
				one);
			exit(2);
		}
		text += len + (text[len] == ',');
	}
}

static void config_load(void)
{
	struct config *c = &config_values;
	const char *dir = getenv("SOFTVERBS_DIR");
	int len;

	c->rails = (int)config_number("SOFTVERBS_RAILS", 1, RAILS_MAX, 2);
	c->strict = config_number("SOFTVERBS_STRICT", 0, 1, 1) != 0;
	c->adversary = config_number("SOFTVERBS_ADVERSARY", 0, 1, 0) != 0;
	c->seed = (uint64_t)config_number("SOFTVERBS_SEED", 0, INT64_MAX, 1);
	c->eio_switch = config_switch("RDMAV_ALLOW_DISASSOC_DESTROY") ||
			config_switch("MLX4_DEVICE_FATAL_CLEANUP");
	config_personality(c);
	config_addresses(c);
	/* A sockaddr_un holds 108 bytes; the folder must leave room for "/node-1023". */
	if (dir && *dir)
		len = snprintf(c->dir, sizeof(c->dir), "%s", dir);
	else
		len = snprintf(c->dir, sizeof(c->dir), "/tmp/softverbs-%u", (unsigned int)getuid());
	if (len < 0 || (size_t)len >= sizeof(c->dir)) {
		fprintf(stderr, "softverbs: SOFTVERBS_DIR: longer than %zu bytes\n",
			sizeof(c->dir) - 1);
		exit(2);
	}
}

const struct config *config_get(void)
{
	pthread_once(&config_once, config_load);
	return &config_values;
}
