/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * glibc takes a file for loaded when its path or its SONAME is known, whatever its bytes are now
 * (elf/dl-load.c, _dl_map_object): so new code needs a new path, and the content names it (H1).
 */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <glib.h>

#include "plugin/error.h"
#include "plugin/file.h"

escrow_status file_read(const char *path, uint8_t **bytes, uint64_t *size,
			struct escrow_error *error)
{
	escrow_status status = ESCROW_E_INVALID;
	struct stat st;
	uint64_t done = 0;
	uint8_t *buf;
	/* O_NONBLOCK: a FIFO must not hang the host; it is refused below. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

	if (fd < 0)
		return error_errno(error, status, errno, "%.150s cannot be opened", path);
	if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
		error_set(error, status, "%.150s is not a regular file", path);
		goto close_file;
	}
	if ((uint64_t)st.st_size > FILE_MAX_BYTES) {
		error_set(error, status,
			  "%.150s has %" G_GUINT64_FORMAT " bytes; at most %" G_GUINT64_FORMAT
			  " are read",
			  path, (uint64_t)st.st_size, FILE_MAX_BYTES);
		goto close_file;
	}
	buf = g_try_malloc((gsize)st.st_size + 1);
	if (!buf) {
		status = error_set(error, ESCROW_E_NO_MEMORY, "no memory to read %.150s", path);
		goto close_file;
	}
	while (done < (uint64_t)st.st_size) {
		ssize_t got = pread(fd, buf + done, (size_t)st.st_size - done, (off_t)done);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			break; /* it was cut meanwhile: what was read is what is judged */
		done += (uint64_t)got;
	}
	*bytes = buf;
	*size = done;
	status = ESCROW_OK;
close_file:
	close(fd);
	return status;
}

void file_hash(const uint8_t *bytes, uint64_t size, char hash[FILE_HASH_SIZE])
{
	g_autoptr(GChecksum) sum = g_checksum_new(G_CHECKSUM_SHA256);

	g_checksum_update(sum, bytes, (gssize)size);
	g_strlcpy(hash, g_checksum_get_string(sum), FILE_HASH_SIZE);
}

static escrow_status file_own_dir(const char *dir, struct escrow_error *error)
{
	struct stat st;

	if (mkdir(dir, 0700) != 0 && errno != EEXIST)
		return error_errno(error, ESCROW_E_INVALID, errno, "folder %.150s cannot be made",
				   dir);
	/* lstat: a link that another user left in /tmp is not ours */
	if (lstat(dir, &st) != 0)
		return error_errno(error, ESCROW_E_INVALID, errno, "folder %.150s", dir);
	if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 077) != 0)
		return error_set(error, ESCROW_E_INVALID,
				 "%.150s is not a folder of this user with mode 0700", dir);
	return ESCROW_OK;
}

static int file_write_all(int fd, const uint8_t *bytes, uint64_t size)
{
	while (size) {
		ssize_t put = write(fd, bytes, size);

		if (put < 0 && errno == EINTR)
			continue;
		if (put <= 0)
			return put < 0 ? errno : EIO;
		bytes += put;
		size -= (uint64_t)put;
	}
	return fsync(fd) == 0 ? 0 : errno;
}

/* A new file under a name of its own, then renamed: nobody ever sees half of it. */
static escrow_status file_place(const char *path, const uint8_t *bytes, uint64_t size,
				struct escrow_error *error)
{
	g_autofree char *part =
		g_strdup_printf("%s.%ld.%08x", path, (long)getpid(), g_random_int());
	int err, fd = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0500);

	if (fd < 0)
		return error_errno(error, ESCROW_E_INVALID, errno, "%.150s cannot be made", part);
	err = file_write_all(fd, bytes, size);
	close(fd);
	if (!err && rename(part, path) != 0)
		err = errno;
	if (!err)
		return ESCROW_OK;
	unlink(part);
	return error_errno(error, ESCROW_E_INVALID, err, "%.150s cannot be written", path);
}

/* Does the file hold what its name says? */
static int file_is(const char *path, const char *hash)
{
	g_autofree uint8_t *bytes = NULL;
	char found[FILE_HASH_SIZE];
	uint64_t size = 0;

	if (file_read(path, &bytes, &size, NULL) != ESCROW_OK)
		return 0;
	file_hash(bytes, size, found);
	return strcmp(found, hash) == 0;
}

escrow_status file_copy(const char *dir, const uint8_t *bytes, uint64_t size, const char *hash,
			char **path, struct escrow_error *error)
{
	g_autofree char *own = NULL, *file = NULL;
	/* who owns the folder above may put another in its place behind the checks */
	const char *runtime = secure_getenv("XDG_RUNTIME_DIR");
	escrow_status status;

	if (!dir && runtime && g_path_is_absolute(runtime))
		own = g_build_filename(runtime, "escrow-backends", NULL);
	else if (!dir)
		own = g_strdup_printf("/tmp/escrow-backends-%lu", (unsigned long)geteuid());
	status = file_own_dir(dir ? dir : own, error);
	if (status != ESCROW_OK)
		return status;
	file = g_strdup_printf("%s/%s.so", dir ? dir : own, hash);
	if (!file_is(file, hash)) {
		status = file_place(file, bytes, size, error);
		if (status != ESCROW_OK)
			return status;
		if (!file_is(file, hash))
			return error_set(error, ESCROW_E_INVALID,
					 "%.150s does not hold what was written to it", file);
	}
	*path = g_steal_pointer(&file);
	return ESCROW_OK;
}
