/* SPDX-License-Identifier: BSD-2-Clause */
/* packet.c - one packet out, one packet in; what comes in is sound or refused. */
#include "backends/mock/packet.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "backends/engine/native.h"

int packet_send(int fd, struct packet *header, const struct iovec *pieces, unsigned int count)
{
	struct iovec iov[NATIVE_MAX_SGE + 1];
	struct msghdr msg = {.msg_iov = iov, .msg_iovlen = count + 1};

	header->magic = PACKET_MAGIC;
	header->version = PACKET_VERSION;
	header->payload = 0;
	iov[0] = (struct iovec){.iov_base = header, .iov_len = sizeof(*header)};
	for (unsigned int i = 0; i < count; i++) {
		iov[i + 1] = pieces[i];
		header->payload += (uint32_t)pieces[i].iov_len;
	}
	if (sendmsg(fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
		return 0;
	/* ENOBUFS and ENOMEM pass, as a full socket does. */
	return errno == EWOULDBLOCK || errno == ENOBUFS || errno == ENOMEM || errno == EINTR
		       ? EAGAIN
		       : errno;
}

int packet_receive(int fd, uint8_t *room)
{
	struct packet p;
	ssize_t n = recv(fd, room, PACKET_BYTES, MSG_DONTWAIT | MSG_TRUNC);

	if (n < 0)
		return errno == EWOULDBLOCK || errno == EINTR ? 0 : -errno;
	if (n == 0)
		return -ECONNRESET;
	/* MSG_TRUNC: n is the true length of the packet */
	if ((size_t)n < sizeof(p) || (size_t)n > PACKET_BYTES)
		return -EPROTO;
	memcpy(&p, room, sizeof(p));
	if (p.magic != PACKET_MAGIC || p.version != PACKET_VERSION || p.reserved0 ||
	    p.payload != (size_t)n - sizeof(p) || p.kind == PACKET_NONE || p.kind > PACKET_BYE)
		return -EPROTO;
	return 1;
}
