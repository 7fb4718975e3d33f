/* SPDX-License-Identifier: BSD-2-Clause */
/* Discovery and loading: each bad file gets one clear line, and is not mapped unless its code ran. */
#include <config.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "plugin/escrow.h"
#include "tests/lib/testing.h"
#include "tests/unit/modules.h"

/* More than a probe takes on any machine; where one hangs, Check ends the test. */
#define LONG_NS UINT64_C(600000000000)

static struct escrow_error error;
static struct escrow_module *module;
static uint64_t probe_ns = LONG_NS;

static escrow_status load_with(const char *path, uint32_t flags, const char *dir)
{
	struct escrow_load_args args = {.size = sizeof(args),
					.flags = flags,
					.name = path,
					.copy_dir = dir,
					.probe_timeout_ns = probe_ns};

	memset(&error, 0, sizeof(error));
	error.size = sizeof(error);
	module = NULL;
	return escrow_load(&args, &module, &error);
}

static escrow_status load(const char *name, uint32_t flags)
{
	return load_with(modules_path(name), flags, NULL);
}

static struct escrow_module_info info_of(const struct escrow_module *m)
{
	struct escrow_module_info info = {.size = sizeof(info)};

	ck_assert_int_eq(escrow_module_info(m, &info), ESCROW_OK);
	return info;
}

struct bad {
	const char *name;
	uint32_t flags;
	escrow_status status;
	const char *text;
};

static const struct bad bad[] = {
	{"bad-none", 0, ESCROW_E_INVALID, "no entry"},
	{"bad-depend", 0, ESCROW_E_INVALID, "a dependency does not count"},
	{"bad-export", 0, ESCROW_E_INVALID, "ibv_fake_open"},
	{"bad-revision", 0, ESCROW_E_REVISION, "revision 99; asked for was 1..1"},
	{"bad-range", 0, ESCROW_E_REVISION, "this backend speaks 7..9"},
	{"bad-slot", 0, ESCROW_E_INVALID, "mandatory slot transfer is NULL"},
	{"bad-descriptor", 0, ESCROW_E_INVALID, "[a-z][a-z0-9-]{0,31}"},
	{"bad-cap", 0, ESCROW_E_INVALID, "slot charges is NULL"},
	{"bad-exit", ESCROW_LOAD_PROBE, ESCROW_E_INVALID, "ended without a verdict"},
	{"bad-crash", ESCROW_LOAD_PROBE, ESCROW_E_INVALID, "dlopen"},
	{"bad-hang", ESCROW_LOAD_PROBE_OPEN, ESCROW_E_TIMEOUT, "hung in open"},
	{"no-such-file", 0, ESCROW_E_INVALID, "cannot be opened"},
};

/*
 * Where a hang is meant, with a limit that ends in it.  The limit is of the whole probe: on a busy machine
 * fork, exec and dlopen alone may take longer than a short one.
 */
static escrow_status load_bad(const struct bad *b)
{
	escrow_status status;

	if (b->status == ESCROW_E_TIMEOUT)
		probe_ns = 300000000;
	do {
		status = load(b->name, b->flags);
		probe_ns *= 2;
	} while (status == ESCROW_E_TIMEOUT && !strstr(error.text, "hung in open"));
	probe_ns = LONG_NS;
	return status;
}

/* How many modules are known as mapped, refused, and why. */
static int is_listed_as_refused(const char *why)
{
	struct escrow_module_info all[4];
	int32_t n = escrow_modules(all, 4, sizeof(all[0]));
	int found = 0;

	for (int32_t i = 0; i < n; i++) {
		if (all[i].state != ESCROW_MODULE_REFUSED)
			continue;
		found++;
		ck_assert_ptr_null(all[i].backend);
		ck_assert_msg(strstr(all[i].why, why) != NULL, "%s", all[i].why);
	}
	return found;
}

START_TEST(a_bad_file_gets_one_clear_line)
{
	const struct bad *b = &bad[_i];

	ck_assert_int_eq(load_bad(b), b->status);
	ck_assert_ptr_null(module);
	ck_assert_msg(strstr(error.text, b->text) != NULL, "\"%s\" does not say \"%s\"", error.text,
		      b->text);
	ck_assert_ptr_null(strchr(error.text, '\n'));
	ck_assert_int_eq(error.status, b->status);
	/* what a static check or the probe refused was never mapped here */
	if (_i < 3 || b->flags)
		ck_assert_int_eq(modules_mapped(b->name), 0);
	ck_assert_int_eq(modules_mapped(b->name), is_listed_as_refused(b->text));
	/* again, more often than objects may be mapped: the same answer */
	for (int i = 0; i < 40 && !b->flags; i++)
		ck_assert_int_eq(load(b->name, b->flags), b->status);
	/* the host goes on */
	ck_assert_int_eq(load("fake", ESCROW_LOAD_PROBE), ESCROW_OK);
}
END_TEST

/* A module of before there were rails need not survive it to be asked for them; the host does. */
START_TEST(rails_of_a_module_of_before)
{
	struct escrow_host_args args = {.size = sizeof(args), .engine_name = "e"};
	struct escrow_rail rail;

	ck_assert_int_eq(load("bad-asked", 0), ESCROW_OK);
	args.module = module;
	ck_assert_int_eq(escrow_rails(&args, &rail, 1, sizeof(rail), &error), ESCROW_E_INVALID);
	ck_assert_str_eq(error.text, "probe: crashed in rails: Killed");
	escrow_module_unref(module);
	ck_assert_int_eq(load("fake", 0), ESCROW_OK);
	args.module = module;
	ck_assert_int_eq(escrow_rails(&args, NULL, 0, 0, &error), ESCROW_E_UNSUPPORTED);
	escrow_module_unref(module);
}
END_TEST

START_TEST(a_loaded_module_is_described)
{
	struct escrow_module_info info, all[4];
	struct escrow_module *again;

	ck_assert_int_eq(load("fake", 0), ESCROW_OK);
	info = info_of(module);
	ck_assert_int_eq(info.state, ESCROW_MODULE_IN_USE);
	ck_assert_int_eq(info.references, 1);
	ck_assert_int_eq(info.revision, 1);
	ck_assert_int_eq(info.resident, 1);
	ck_assert_str_eq(info.backend->id, "fake");
	ck_assert_int_eq(strlen(info.sha256), 64);
	again = module;
	ck_assert_int_eq(load("fake", 0), ESCROW_OK);
	ck_assert_ptr_eq(module, again);
	ck_assert_int_eq(info_of(module).references, 2);
	escrow_module_unref(module);
	escrow_module_unref(module);
	ck_assert_int_eq(escrow_modules(all, 4, sizeof(all[0])), 1);
	ck_assert_int_eq(all[0].state, ESCROW_MODULE_RETIRED);
	ck_assert_int_eq(modules_mapped("/fake.so"), 1); /* retired, not unmapped */
	ck_assert_int_eq(load("fake", 0), ESCROW_OK);
	ck_assert_int_eq(info_of(module).state, ESCROW_MODULE_IN_USE);
}
END_TEST

/* field-24 */
START_TEST(only_what_allows_it_is_unmapped)
{
	struct escrow_module_info info, all[4] = {0};

	unsetenv("ESCROW_KEEP_BACKENDS");
	ck_assert_int_eq(load("fake", ESCROW_LOAD_MAY_UNMAP), ESCROW_OK);
	info = info_of(module);
	ck_assert_int_eq(info.resident, 1);
	ck_assert_ptr_nonnull(strstr(info.why, "nodelete"));
	escrow_module_unref(module);
	ck_assert_int_eq(modules_mapped("/fake.so"), 1);
	if (getenv("SANITIZERS") && *getenv("SANITIZERS"))
		return; /* an unmapped object has no symbols in a leak report */
	ck_assert_int_eq(load("bad-unmap", ESCROW_LOAD_MAY_UNMAP), ESCROW_OK);
	ck_assert_int_eq(info_of(module).resident, 0);
	escrow_module_unref(module);
	ck_assert_int_eq(escrow_modules(all, 4, sizeof(all[0])), 2);
	ck_assert_int_eq(all[1].state, ESCROW_MODULE_UNMAPPED);
	ck_assert_ptr_null(all[1].backend);
	ck_assert_int_eq(modules_mapped("bad-unmap"), 0);
	/* and comes again as a new module */
	ck_assert_int_eq(load("bad-unmap", 0), ESCROW_OK);
	ck_assert_int_eq(info_of(module).resident, 1);
}
END_TEST

START_TEST(a_copy_is_named_by_its_content)
{
	char dir[] = "/tmp/escrow-copies-XXXXXX", expected[256];
	struct escrow_module *first;
	struct escrow_module_info info;
	struct stat st;

	ck_assert_ptr_nonnull(mkdtemp(dir));
	ck_assert_int_eq(load_with(modules_path("fake"), ESCROW_LOAD_COPY, dir), ESCROW_OK);
	info = info_of(module);
	snprintf(expected, sizeof(expected), "%s/%s.so", dir, info.sha256);
	ck_assert_str_eq(info.mapped, expected);
	ck_assert_int_eq(stat(expected, &st), 0);
	ck_assert_int_eq(st.st_mode & 0777, 0500);
	first = module;
	/* the same bytes are the same object */
	ck_assert_int_eq(load_with(modules_path("fake"), ESCROW_LOAD_COPY, dir), ESCROW_OK);
	ck_assert_ptr_eq(module, first);
	/* a copy that was tampered with is replaced, not trusted */
	ck_assert_int_eq(unlink(expected), 0);
	ck_assert_int_eq(symlink("/etc/passwd", expected), 0);
	ck_assert_int_eq(load_with(modules_path("fake"), ESCROW_LOAD_COPY, dir), ESCROW_OK);
	ck_assert_int_eq(lstat(expected, &st), 0);
	ck_assert(S_ISREG(st.st_mode));
	unlink(expected);
	/* a folder that others may write is no place for code */
	ck_assert_int_eq(chmod(dir, 0770), 0);
	ck_assert_int_eq(load_with(modules_path("fake"), ESCROW_LOAD_COPY, dir), ESCROW_E_INVALID);
	ck_assert_ptr_nonnull(strstr(error.text, "0700"));
	rmdir(dir);
}
END_TEST

/* glibc gives the old object for a path that it knows; the library must not fall for it. */
START_TEST(new_bytes_under_an_old_path_are_new_code)
{
	char dir[] = "/tmp/escrow-copies-XXXXXX", path[64];
	uint64_t size;
	uint8_t *bytes = modules_read(modules_path("fake"), &size);
	struct escrow_module *old;

	ck_assert_ptr_nonnull(mkdtemp(dir));
	strcpy(path, modules_write(bytes, size));
	ck_assert_int_eq(load_with(path, 0, dir), ESCROW_OK);
	old = module;
	ck_assert_str_eq(info_of(old).mapped, path);
	free(bytes);
	bytes = modules_read(modules_path("bad-unmap"), &size);
	ck_assert_int_eq(rename(modules_write(bytes, size), path), 0);
	free(bytes);
	ck_assert_int_eq(load_with(path, 0, dir), ESCROW_OK);
	ck_assert_ptr_ne(module, old);
	ck_assert_int_eq(info_of(module).backend->residency, ESCROW_RESIDENCY_MAY_UNMAP);
	ck_assert_int_eq(info_of(old).backend->residency, ESCROW_RESIDENCY_STAYS);
	unlink(path);
	unlink(info_of(module).mapped);
	rmdir(dir);
}
END_TEST

/* So too when the old code was refused: the author corrects his backend, and the host loads it. */
START_TEST(a_corrected_file_is_new_code)
{
	char dir[] = "/tmp/escrow-copies-XXXXXX", path[64];
	uint64_t size;
	uint8_t *bytes = modules_read(modules_path("bad-slot"), &size);

	ck_assert_ptr_nonnull(mkdtemp(dir));
	strcpy(path, modules_write(bytes, size));
	free(bytes);
	ck_assert_int_eq(load_with(path, 0, dir), ESCROW_E_INVALID);
	bytes = modules_read(modules_path("fake"), &size);
	ck_assert_int_eq(rename(modules_write(bytes, size), path), 0);
	free(bytes);
	ck_assert_int_eq(load_with(path, 0, dir), ESCROW_OK);
	ck_assert_str_eq(info_of(module).backend->id, "fake");
	unlink(path);
	unlink(info_of(module).mapped);
	rmdir(dir);
}
END_TEST

/* dlclose promises nothing: here the host itself has the object too. */
START_TEST(what_stayed_mapped_can_be_loaded_again)
{
	const char *path = modules_path("bad-unmap");
	char *real = realpath(path, NULL);
	struct escrow_module_info all[2];
	void *own;

	unsetenv("ESCROW_KEEP_BACKENDS");
	own = dlopen(real, RTLD_NOW | RTLD_LOCAL);
	ck_assert_ptr_nonnull(own);
	ck_assert_int_eq(load("bad-unmap", ESCROW_LOAD_MAY_UNMAP), ESCROW_OK);
	escrow_module_unref(module);
	ck_assert_int_eq(escrow_modules(all, 2, sizeof(all[0])), 1);
	ck_assert_int_eq(all[0].state, ESCROW_MODULE_STILL_MAPPED);
	ck_assert_int_eq(load("bad-unmap", ESCROW_LOAD_MAY_UNMAP), ESCROW_OK);
	ck_assert_int_eq(info_of(module).state, ESCROW_MODULE_IN_USE);
	ck_assert_int_eq(info_of(module).references, 1);
	ck_assert_str_eq(info_of(module).backend->id, "fake");
	ck_assert_int_eq(escrow_modules(all, 2, sizeof(all[0])), 1);
	dlclose(own);
	free(real);
}
END_TEST

/* The loader knows a file by its inode too, and would give it under its first name. */
START_TEST(two_names_of_a_file_are_one_module)
{
	char dir[] = "/tmp/escrow-names-XXXXXX", link[64];
	char *real = realpath(modules_path("fake"), NULL);
	struct escrow_module *first;

	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(link, sizeof(link), "%s/link.so", dir);
	ck_assert_int_eq(symlink(real, link), 0);
	ck_assert_int_eq(load_with(link, 0, NULL), ESCROW_OK);
	first = module;
	ck_assert_str_eq(info_of(first).path, link);
	ck_assert_int_eq(load("fake", 0), ESCROW_OK);
	ck_assert_ptr_eq(module, first);
	ck_assert_int_eq(info_of(first).references, 2);
	unlink(link);
	rmdir(dir);
	free(real);
}
END_TEST

START_TEST(the_number_of_mapped_objects_is_bounded)
{
	ck_assert_int_eq(escrow_module_cap(0), 32);
	ck_assert_int_eq(escrow_module_cap(1), 32);
	ck_assert_int_eq(load("fake", 0), ESCROW_OK);
	ck_assert_int_eq(load("bad-open", 0), ESCROW_E_LIMIT);
	ck_assert_ptr_nonnull(strstr(error.text, "at most 1"));
	ck_assert_int_eq(modules_mapped("bad-open"), 0);
	ck_assert_int_eq(load("fake", 0), ESCROW_OK); /* costs none */
	escrow_module_cap(2);
	ck_assert_int_eq(load("bad-open", 0), ESCROW_OK);
}
END_TEST

struct names {
	char text[512];
	int stop_at;
	int n;
};

static int32_t collect(void *ctx, const char *name, const char *path)
{
	struct names *names = ctx;

	strcat(strcat(names->text, name), " ");
	ck_assert_ptr_nonnull(strchr(path, '/'));
	return ++names->n == names->stop_at;
}

START_TEST(backends_are_found_in_order)
{
	char one[] = "/tmp/escrow-one-XXXXXX", two[] = "/tmp/escrow-two-XXXXXX", path[512];
	struct names names = {.stop_at = -1}, first = {.stop_at = 1};
	const char *files[] = {"b.so", "a.so", "x.la", ".so"};
	uint64_t len = sizeof(path);

	ck_assert_ptr_nonnull(mkdtemp(one));
	ck_assert_ptr_nonnull(mkdtemp(two));
	for (int i = 0; i < 4; i++) {
		snprintf(path, sizeof(path), "%s/%s", one, files[i]);
		fclose(fopen(path, "w"));
	}
	snprintf(path, sizeof(path), "%s/a.so", two);
	fclose(fopen(path, "w"));
	snprintf(path, sizeof(path), "%s:%s", two, one);
	setenv("ESCROW_BACKEND_PATH", path, 1);
	ck_assert_int_ge(escrow_discover(collect, &names), 2);
	ck_assert_int_eq(strncmp(names.text, "a b ", 4), 0);
	ck_assert_int_eq(escrow_discover(collect, &first), 1);
	ck_assert_int_eq(escrow_find("a", path, &len, &error), ESCROW_OK);
	ck_assert_int_eq(strncmp(path, two, strlen(two)), 0); /* the first hides the second */
	ck_assert_int_eq(len, strlen(path) + 1);
	len = 3;
	ck_assert_int_eq(escrow_find("a", path, &len, &error), ESCROW_E_TOO_SMALL);
	ck_assert_int_eq(len, strlen(two) + 6);
	len = sizeof(path);
	ck_assert_int_eq(escrow_find("nosuch", path, &len, &error), ESCROW_E_INVALID);
	ck_assert_ptr_nonnull(strstr(error.text, "ESCROW_BACKEND_PATH"));
	snprintf(path, sizeof(path), "rm -r %s %s", one, two);
	ck_assert_int_eq(system(path), 0);
}
END_TEST

START_TEST(bad_arguments_are_refused)
{
	struct escrow_load_args args = {.size = sizeof(args), .name = "fake", .flags = 1u << 20};

	ck_assert_int_eq(escrow_load(&args, &module, &error), ESCROW_E_UNSUPPORTED);
	args.flags = 0;
	ck_assert_int_eq(escrow_load(&args, NULL, &error), ESCROW_E_INVALID);
	args.name = NULL;
	ck_assert_int_eq(escrow_load(&args, &module, &error), ESCROW_E_INVALID);
	args.size = 4;
	ck_assert_int_eq(escrow_load(&args, &module, NULL), ESCROW_E_INVALID);
	ck_assert_str_eq(escrow_status_name(ESCROW_E_BUSY), "E_BUSY");
	ck_assert_str_eq(escrow_status_name(-77), "E_?");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("load");
	TCase *tcase = tcase_create("modules");

	tcase_set_timeout(tcase, 60);
	tcase_add_loop_test(tcase, a_bad_file_gets_one_clear_line, 0, sizeof(bad) / sizeof(bad[0]));
	tcase_add_test(tcase, rails_of_a_module_of_before);
	tcase_add_test(tcase, a_loaded_module_is_described);
	tcase_add_test(tcase, only_what_allows_it_is_unmapped);
	tcase_add_test(tcase, a_copy_is_named_by_its_content);
	tcase_add_test(tcase, new_bytes_under_an_old_path_are_new_code);
	tcase_add_test(tcase, a_corrected_file_is_new_code);
	tcase_add_test(tcase, what_stayed_mapped_can_be_loaded_again);
	tcase_add_test(tcase, two_names_of_a_file_are_one_module);
	tcase_add_test(tcase, the_number_of_mapped_objects_is_bounded);
	tcase_add_test(tcase, backends_are_found_in_order);
	tcase_add_test(tcase, bad_arguments_are_refused);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
