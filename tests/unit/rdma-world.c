/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/unit/rdma-world.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/lib/testing.h"
#include "tests/unit/rdma-kit.h"

static char addresses[2][64]; /* of the rails, as text */

/* Rail r of the guest is on the interface railR (docs/softroce.md). */
__attribute__((format(printf, 1, 2))) static void ip(const char *format, ...)
{
	char line[256] = "ip ";
	va_list ap;

	va_start(ap, format);
	vsnprintf(line + 3, sizeof(line) - 3, format, ap);
	va_end(ap);
	ck_assert_msg(system(line) == 0, "%s", line);
}

void world_link(int rail, int up)
{
	void (*softverbs_port)(int rail, int up);

	*(void **)&softverbs_port = dlsym(RTLD_DEFAULT, "softverbs_port");
	if (softverbs_port)
		softverbs_port(rail, up);
	else
		ip("link set rail%d %s", rail, up ? "up" : "down");
}

void world_address(int rail, int there)
{
	void (*softverbs_gid)(int rail, int there);

	*(void **)&softverbs_gid = dlsym(RTLD_DEFAULT, "softverbs_gid");
	if (softverbs_gid)
		softverbs_gid(rail, there);
	else
		ip("address %s %s/24 dev rail%d", there ? "add" : "del", addresses[rail], rail);
}

const char *world_missing(void)
{
	static char why[256];

	if (!ends_possible(why, sizeof(why)))
		return why;
	if (ends_rails(addresses, 2) < 2)
		return "two rails are needed";
	return ends_double() || getenv("ESCROW_TEST_GUEST")
		       ? ""
		       : "links and addresses are changed on softverbs and in the guest only";
}
