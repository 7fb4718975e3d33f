/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <glib.h>

#include "plugin/error.h"
#include "plugin/supervisor.h"

#define PATIENCE_S 10

static int supervisor_dial(const char *path)
{
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	struct timeval patience = {.tv_sec = PATIENCE_S};
	int fd;

	if (g_strlcpy(name.sun_path, path, sizeof(name.sun_path)) >= sizeof(name.sun_path)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	if (connect(fd, (const struct sockaddr *)&name, sizeof(name)) == 0)
		return fd;
	close(fd);
	return -1;
}

/* One line there, one line back, without its newline. */
static bool supervisor_ask(int fd, const char *line, char *answer, size_t size)
{
	size_t have = 0;

	if (send(fd, line, strlen(line), MSG_NOSIGNAL) != (ssize_t)strlen(line))
		return false;
	while (have < size - 1) {
		ssize_t n = recv(fd, answer + have, 1, 0);

		if (n <= 0) {
			errno = n ? errno : ECONNRESET;
			return false;
		}
		if (answer[have] == '\n')
			break;
		have++;
	}
	answer[have] = '\0';
	return true;
}

escrow_status supervisor_tell(const uint8_t incarnation[16], struct escrow_error *error)
{
	const char *path = secure_getenv("ESCROW_SUPERVISOR");
	char line[48] = "engine ", answer[128] = "";
	escrow_status status = ESCROW_OK;
	int fd;

	if (!path || !*path)
		return ESCROW_OK;
	for (int i = 0; i < 16; i++)
		g_snprintf(line + 7 + 2 * i, 3, "%02x", incarnation[i]);
	strcat(line, "\n");
	fd = supervisor_dial(path);
	if (fd < 0 || !supervisor_ask(fd, line, answer, sizeof(answer)))
		status = error_errno(error, ESCROW_E_STATE, errno,
				     "ESCROW_SUPERVISOR is %.100s: no answer", path);
	else if (strncmp(answer, "known ", 6) != 0)
		status = error_set(error, ESCROW_E_STATE, "the supervisor at %.100s: %.100s", path,
				   answer);
	if (fd >= 0)
		close(fd);
	return status;
}
