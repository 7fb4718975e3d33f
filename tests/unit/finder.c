/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * finder NAME FILE: whether it runs in secure mode, where the backend NAME is found, and where a copy
 * of FILE is loaded from; for test-secure.sh.
 */
#include <stdio.h>
#include <sys/auxv.h>

#include "plugin/escrow.h"

int main(int argc, char **argv)
{
	struct escrow_error error = {.size = sizeof(error)};
	struct escrow_module_info info = {.size = sizeof(info)};
	struct escrow_load_args args = {.size = sizeof(args), .flags = ESCROW_LOAD_COPY};
	struct escrow_module *module = NULL;
	char path[256] = "";
	uint64_t len = sizeof(path);

	printf("secure %lu\n", getauxval(AT_SECURE));
	if (argc != 3)
		return 2;
	if (escrow_find(argv[1], path, &len, &error) != ESCROW_OK)
		path[0] = '\0';
	printf("found %s\n", path);
	args.name = argv[2];
	if (escrow_load(&args, &module, &error) != ESCROW_OK) {
		printf("not loaded: %s\n", error.text);
		return 1;
	}
	escrow_module_info(module, &info);
	printf("copied to %s\n", info.mapped);
	return 0;
}
