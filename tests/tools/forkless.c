/* SPDX-License-Identifier: BSD-2-Clause */
/* To be preloaded: fork fails in the escrow command, as where there are too many processes; posix_spawn does not. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

__attribute__((visibility("default"))) pid_t fork(void)
{
	pid_t (*real)(void) = (pid_t(*)(void))dlsym(RTLD_NEXT, "fork");

	/* The script that libtool puts before it in the build tree goes on. */
	if (!strstr(program_invocation_short_name, "escrow") || !real)
		return real ? real() : -1;
	errno = EAGAIN;
	return -1;
}
