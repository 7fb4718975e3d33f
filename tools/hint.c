/* SPDX-License-Identifier: BSD-2-Clause */
#include "config.h"

#include <string.h>

#include "tools/tool.h"

/* What the RDMA backend says where there is none (backends/rdma/rail.c); of one that it cannot use it says more. */
#define NO_DEVICE "no RDMA device on this machine"

void tool_hint_device(const char *text)
{
	if (strstr(text, NO_DEVICE))
		tool_complain("softverbs stands in for one: `./dev softverbs -- COMMAND` in the "
			      "build tree, installed "
			      "`LD_PRELOAD=" PKGLIBDIR "/libsoftverbs.so COMMAND`");
}

bool tool_key_unknown(const char *text)
{
	return strstr(text, "unknown key");
}

void tool_hint_setting(const char *text, const char *backend)
{
	if (tool_key_unknown(text))
		tool_complain("`escrow info %s` lists the keys, with their defaults", backend);
}
