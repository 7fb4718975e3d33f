/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the demo runs on when it is not told: a real RDMA device if there is one; else the RDMA
 * backend over softverbs, a verbs device in user space that is loaded ahead of libibverbs; else the
 * mock.
 */
#include "config.h"

#include <stdio.h>
#include <unistd.h>

#include "plugin/escrow.h"
#include "tools/demo.h"
#include "tools/tool.h"

#define DOUBLE "libsoftverbs.so"

/* Documentation/ABI/stable/sysfs-class-infiniband: one folder a device. */
static bool device_is_there(void)
{
	g_autoptr(GDir) dir = g_dir_open("/sys/class/infiniband", 0, NULL);

	return dir && g_dir_read_name(dir);
}

static bool backend_is_there(const char *name)
{
	char path[4096];
	uint64_t len = sizeof(path);

	return escrow_find(name, path, &len, NULL) == ESCROW_OK;
}

/* SOFTVERBS_LIB, the build tree, or as installed; NULL if there is none. */
static char *double_path(void)
{
	g_autofree char *self = g_file_read_link("/proc/self/exe", NULL);
	g_autofree char *folder = self ? g_path_get_dirname(self) : g_strdup(".");
	const char *set = g_getenv("SOFTVERBS_LIB");
	char *places[] = {
		g_strdup(set && *set ? set : DOUBLE),
		g_build_filename(folder, "..", "tests", "softverbs", ".libs", DOUBLE, NULL),
		g_build_filename(folder, "..", "..", "tests", "softverbs", ".libs", DOUBLE, NULL),
		g_build_filename(PKGLIBDIR, DOUBLE, NULL),
	};
	char *found = NULL;

	for (size_t i = 0; i < G_N_ELEMENTS(places); i++) {
		if (!found && g_path_is_absolute(places[i]) && !access(places[i], R_OK))
			found = g_steal_pointer(&places[i]);
		g_free(places[i]);
	}
	return found;
}

/*
 * Starts this program again with the double ahead of the verbs libraries, and a folder of its own in
 * which the two processes meet.  Returns only if that fails.
 */
static void again_on_double(const char *path, char **argv)
{
	g_autofree char *folder = g_dir_make_tmp("softverbs.XXXXXX", NULL);
	g_autoptr(GStrvBuilder) words = g_strv_builder_new();
	g_auto(GStrv) all = NULL;

	if (!folder)
		return;
	g_setenv("LD_PRELOAD", path, TRUE);
	g_setenv("SOFTVERBS_DIR", folder, FALSE);
	g_setenv("SOFTVERBS_STRICT", "1", FALSE);
	g_strv_builder_add(words, "escrow");
	g_strv_builder_add(words, tool_command());
	for (char **word = argv + 1; *word; word++)
		g_strv_builder_add(words, *word);
	g_strv_builder_add(words, "--softverbs");
	all = g_strv_builder_end(words);
	execv("/proc/self/exe", all);
	g_unsetenv("LD_PRELOAD");
	rmdir(folder);
}

char *demo_choose_backend(char **argv, bool on_double)
{
	g_autofree char *path = NULL;

	if (on_double) {
		fprintf(stderr, "no RDMA device here: the RDMA backend runs on softverbs, a verbs "
				"device in user space\n");
		return g_strdup("rdma");
	}
	if (device_is_there() && backend_is_there("rdma"))
		return g_strdup("rdma");
	path = double_path();
	if (path && backend_is_there("rdma"))
		again_on_double(path, argv);
	fprintf(stderr,
		"no RDMA device here, and no softverbs: the mock backend moves the bytes\n");
	return g_strdup("mock");
}

void demo_leave_double(void)
{
	const char *folder = g_getenv("SOFTVERBS_DIR");
	g_autoptr(GDir) dir = folder ? g_dir_open(folder, 0, NULL) : NULL;
	const char *name;

	while (dir && (name = g_dir_read_name(dir))) {
		g_autofree char *path = g_build_filename(folder, name, NULL);

		unlink(path);
	}
	if (folder)
		rmdir(folder);
}
