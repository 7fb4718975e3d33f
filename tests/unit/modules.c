/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <fcntl.h>
#include <unistd.h>

#include "tests/lib/testing.h"
#include "tests/unit/modules.h"

static char dropped[64];

const char *modules_path(const char *name)
{
	static char path[4096];
	const char *dir = getenv("TEST_MODULE_PATH");

	snprintf(path, sizeof(path), "%s/%s.so", dir ? dir : "tests/.libs", name);
	return path;
}

uint8_t *modules_read(const char *path, uint64_t *size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	uint8_t *bytes;

	ck_assert_msg(fd >= 0, "%s", path);
	ck_assert_int_eq(fstat(fd, &st), 0);
	bytes = malloc((size_t)st.st_size);
	ck_assert_ptr_nonnull(bytes);
	ck_assert_int_eq(read(fd, bytes, (size_t)st.st_size), st.st_size);
	close(fd);
	*size = (uint64_t)st.st_size;
	return bytes;
}

const char *modules_write(const uint8_t *bytes, uint64_t size)
{
	int fd;

	strcpy(dropped, "/tmp/escrow-test-XXXXXX.so");
	fd = mkstemps(dropped, 3);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, bytes, size), (ssize_t)size);
	close(fd);
	return dropped;
}

void modules_drop(void)
{
	unlink(dropped);
}

struct search {
	const char *text;
	int n;
};

static int count(struct dl_phdr_info *info, size_t size, void *data)
{
	struct search *search = data;

	search->n += strstr(info->dlpi_name, search->text) != NULL;
	return 0;
}

int modules_mapped(const char *text)
{
	struct search search = {.text = text};

	dl_iterate_phdr(count, &search);
	return search.n;
}
