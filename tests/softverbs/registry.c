/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/softverbs/registry.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/softverbs/fabric.h"
#include "tests/softverbs/turns.h"

/* The range of Linux's ip_local_port_range. */
#define PORT_FIRST 32768
#define PORT_COUNT 28232

/* Takes the lock of the whole folder; the caller closes it. */
static int registry_lock(void)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/lock", config_get()->dir);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd >= 0 && flock(fd, LOCK_EX)) {
		close(fd);
		return -1;
	}
	return fd;
}

static bool registry_folder(void)
{
	const char *dir = config_get()->dir;
	struct stat st;

	mkdir(dir, 0700);
	/* In /tmp somebody else may have made it. */
	return lstat(dir, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid();
}

void registry_address(uint16_t node, struct sockaddr_un *un)
{
	memset(un, 0, sizeof(*un));
	un->sun_family = AF_UNIX;
	snprintf(un->sun_path, sizeof(un->sun_path), "%s/node-%u", config_get()->dir, node);
}

/* The node's lock file, locked by us, or -1 if somebody has it. */
static int registry_try(uint16_t node)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/node-%u.lock", config_get()->dir, node);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB)) {
		close(fd);
		return -1;
	}
	return fd;
}

static bool registry_alive(uint16_t node)
{
	int fd = registry_try(node);

	if (fd >= 0)
		close(fd);
	return fd < 0;
}

static void registry_name(const struct in6_addr *addr, uint16_t port, char *path, size_t size)
{
	int len = snprintf(path, size, "%s/listen-%u-", config_get()->dir, port);
	unsigned int i;

	for (i = 0; i < 16; i++)
		len += snprintf(path + len, size - (size_t)len, "%02x", addr->s6_addr[i]);
}

/* The node that a listen file names, or -1. */
static int registry_read(const char *path)
{
	FILE *f = fopen(path, "re");
	unsigned int node;
	int n;

	if (!f)
		return -1;
	n = fscanf(f, "%u", &node);
	fclose(f);
	return n == 1 && node < FABRIC_NODES ? (int)node : -1;
}

/* Removes what a dead process left under our number. */
static void registry_sweep(uint16_t node)
{
	DIR *dir = opendir(config_get()->dir);
	struct dirent *e;
	char path[512];

	while (dir && (e = readdir(dir))) {
		if (strncmp(e->d_name, "listen-", 7) != 0)
			continue;
		snprintf(path, sizeof(path), "%s/%s", config_get()->dir, e->d_name);
		if (registry_read(path) == node)
			unlink(path);
	}
	if (dir)
		closedir(dir);
}

int registry_claim(int *lock_fd)
{
	int guard, fd = -1;
	uint16_t node;

	if (!registry_folder() || (guard = registry_lock()) < 0) {
		fprintf(stderr, "softverbs: %s: not a folder of ours; this process is alone\n",
			config_get()->dir);
		return -1;
	}
	for (node = 0; node < FABRIC_NODES && fd < 0; node++)
		fd = registry_try(node);
	node--;
	if (fd >= 0)
		registry_sweep(node);
	close(guard);
	*lock_fd = fd;
	return fd < 0 ? -1 : node;
}

/* Locks of blocks, which stand as long as the process. */
static int registry_blocks[FABRIC_NODES];
static unsigned int registry_nblocks;

/* From the top, where no node comes before all numbers below it are taken. */
int registry_claim_block(void)
{
	int guard = registry_lock(), fd = -1;
	unsigned int node = FABRIC_NODES;

	if (guard < 0)
		return -1;
	while (node > 1 && fd < 0)
		fd = registry_try((uint16_t)--node);
	close(guard);
	if (fd < 0)
		return -1;
	registry_blocks[registry_nblocks++] = fd;
	return (int)node;
}

void registry_forked(void)
{
	while (registry_nblocks)
		close(registry_blocks[--registry_nblocks]);
}

static bool registry_taken(const struct in6_addr *addr, uint16_t port, uint16_t self)
{
	char path[256];
	int node;

	registry_name(addr, port, path, sizeof(path));
	node = registry_read(path);
	return node >= 0 && (node == self || registry_alive((uint16_t)node));
}

static int registry_write(const struct in6_addr *addr, uint16_t port, uint16_t node)
{
	char path[256];
	FILE *f;

	registry_name(addr, port, path, sizeof(path));
	f = fopen(path, "we");
	if (!f)
		return EADDRINUSE;
	fprintf(f, "%u\n", node);
	fclose(f);
	return 0;
}

int registry_listen(const struct in6_addr *addr, uint16_t *port, uint16_t node)
{
	uint16_t try = *port;
	int guard = registry_lock();
	int rounds, rc = EADDRINUSE;

	if (guard < 0)
		return EADDRINUSE;
	for (rounds = 0; rounds < (*port ? 1 : 1000) && rc; rounds++) {
		if (!*port) {
			turns_random(&try, sizeof(try));
			try = (uint16_t)(PORT_FIRST + try % PORT_COUNT);
		}
		if (!registry_taken(addr, try, node))
			rc = registry_write(addr, try, node);
	}
	close(guard);
	if (!rc)
		*port = try;
	return rc;
}

void registry_unlisten(const struct in6_addr *addr, uint16_t port)
{
	char path[256];
	int guard = registry_lock();

	registry_name(addr, port, path, sizeof(path));
	unlink(path);
	if (guard >= 0)
		close(guard);
}

int registry_find(const struct in6_addr *addr, uint16_t port)
{
	char path[256];
	int node;

	registry_name(addr, port, path, sizeof(path));
	node = registry_read(path);
	if (node >= 0)
		return node;
	registry_name(&in6addr_any, port, path, sizeof(path));
	return registry_read(path);
}
