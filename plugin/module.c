/* SPDX-License-Identifier: BSD-2-Clause */
/* All modules are in one list for ever: what was mapped can be reported, and is the same module if it is loaded again. */
#include <config.h>

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <glib.h>

#include "plugin/args.h"
#include "plugin/elf.h"
#include "plugin/error.h"
#include "plugin/file.h"
#include "plugin/module.h"
#include "plugin/negotiate.h"

#define MODULE_DEFAULT_CAP 32u

struct escrow_module {
	char *path;   /* asked for */
	char *mapped; /* loaded from */
	char sha256[FILE_HASH_SIZE];
	void *handle;
	ElfW(Addr) base;
	const struct escrow_backend *backend;
	struct escrow_ops ops;
	uint32_t references;
	uint32_t engines;
	uint32_t state; /* ESCROW_MODULE_* */
	bool resident;
	char why[96];
};

/* What is known of a file on the way to a module. */
struct module_file {
	char *path; /* asked for */
	char *real; /* without symbolic links: two names of one file are one module */
	uint8_t *bytes;
	uint64_t size;
	char sha256[FILE_HASH_SIZE];
	struct elf_report report;
};

static GMutex modules_lock; /* the list, and all counts and states in it */
static GPtrArray *modules;
static uint32_t modules_cap = MODULE_DEFAULT_CAP;

static void module_file_free(struct module_file *file)
{
	g_free(file->path);
	free(file->real);
	g_free(file->bytes);
	g_free(file);
}

/* Finds, reads and judges the file; nothing of it runs. */
static escrow_status module_file_read(const char *name, struct module_file *file,
				      struct escrow_error *error)
{
	char path[4096];
	uint64_t len = sizeof(path);
	escrow_status status = escrow_find(name, path, &len, error);

	if (status != ESCROW_OK)
		return status;
	file->path = g_strdup(path);
	status = file_read(path, &file->bytes, &file->size, error);
	if (status != ESCROW_OK)
		return status;
	file->real = realpath(path, NULL);
	if (!file->real)
		return error_errno(error, ESCROW_E_INVALID, errno, "%.150s", path);
	file->report.profile = ESCROW_CHECK_LOAD;
	if (elf_check(file->bytes, file->size, &file->report))
		return error_set(error, ESCROW_E_INVALID, "%.80s: %s", path,
				 file->report.findings[0].text);
	file_hash(file->bytes, file->size, file->sha256);
	return ESCROW_OK;
}

static escrow_status module_probe(const struct escrow_load_args *args, const char *path,
				  struct escrow_error *error)
{
	struct escrow_probe_args probe = {.size = sizeof(probe),
					  .path = path,
					  .settings = args->settings,
					  .timeout_ns = args->probe_timeout_ns};

	if (args->flags & ESCROW_LOAD_PROBE_OPEN)
		probe.flags |= ESCROW_PROBE_OPEN;
	else if (!(args->flags & ESCROW_LOAD_PROBE))
		return ESCROW_OK;
	return escrow_probe(&probe, NULL, error);
}

/* ---- Under modules_lock -------------------------------------------------------------------- */
static struct escrow_module *module_by_path(const char *mapped)
{
	for (uint32_t i = 0; modules && i < modules->len; i++) {
		struct escrow_module *m = g_ptr_array_index(modules, i);

		if (m->state != ESCROW_MODULE_UNMAPPED && strcmp(m->mapped, mapped) == 0)
			return m;
	}
	return NULL;
}

static uint32_t module_count_mapped(void)
{
	uint32_t n = 0;

	for (uint32_t i = 0; modules && i < modules->len; i++) {
		struct escrow_module *m = g_ptr_array_index(modules, i);

		n += m->state != ESCROW_MODULE_UNMAPPED;
	}
	return n;
}

/* A6: dlsym also searches what the object needs; and the loader may have given another object. */
static escrow_status module_entry(struct escrow_module *module, escrow_entry_fn *entry,
				  struct escrow_error *error)
{
	void *symbol = dlsym(module->handle, ESCROW_ENTRY);
	struct link_map *map = NULL;
	Dl_info info;

	if (!symbol)
		return error_set(error, ESCROW_E_INVALID, "%.120s has no entry %s", module->path,
				 ESCROW_ENTRY);
	if (dlinfo(module->handle, RTLD_DI_LINKMAP, &map) != 0 || !map)
		return error_set(error, ESCROW_E_INTERNAL, "dlinfo: %.120s", dlerror());
	if (strcmp(map->l_name, module->mapped) != 0)
		return error_set(error, ESCROW_E_INVALID,
				 "asked for %.90s, but the loader gave %.90s", module->mapped,
				 map->l_name);
	if (!dladdr(symbol, &info) || strcmp(info.dli_fname, map->l_name) != 0)
		return error_set(error, ESCROW_E_INVALID,
				 "%.90s has no entry of its own: %s is from %.60s", module->path,
				 ESCROW_ENTRY, info.dli_fname ? info.dli_fname : "nowhere");
	module->base = map->l_addr;
	memcpy(entry, &symbol, sizeof(*entry));
	return ESCROW_OK;
}

/* U2: may it ever be unmapped?  Why not is kept for reports. */
static bool module_may_unmap(uint32_t flags, const struct elf_report *report, const char **why)
{
	if (!(flags & ESCROW_LOAD_MAY_UNMAP))
		*why = "backends stay mapped unless the operator asks";
	else if (g_getenv("ESCROW_KEEP_BACKENDS"))
		*why = "ESCROW_KEEP_BACKENDS is set";
	else if (report->nodelete)
		*why = "it is linked with -z nodelete";
	else if (report->unique)
		*why = "it has unique symbols, which the loader keeps";
	else if (report->links_glib)
		*why = "it links GLib, which keeps pointers into it";
	else
		return true;
	return false;
}

static escrow_status module_map(struct escrow_module *module, struct escrow_error *error)
{
	escrow_entry_fn entry = NULL;
	escrow_status status;

	module->handle = dlopen(module->mapped,
				RTLD_NOW | RTLD_LOCAL | (module->resident ? RTLD_NODELETE : 0));
	if (!module->handle)
		return error_set(error, ESCROW_E_INVALID, "dlopen: %.200s", dlerror());
	status = module_entry(module, &entry, error);
	if (status == ESCROW_OK)
		status = negotiate(entry, &module->backend, &module->ops, error);
	if (status != ESCROW_OK) {
		dlclose(module->handle);
		return status;
	}
	if (!module->resident && module->backend->residency != ESCROW_RESIDENCY_MAY_UNMAP) {
		/* ask again, so that it becomes resident after all (dlopen(3), RTLD_NODELETE) */
		dlclose(dlopen(module->mapped,
			       RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD | RTLD_NODELETE));
		module->resident = true;
		g_strlcpy(module->why, "its descriptor says that it stays", sizeof(module->why));
	}
	return ESCROW_OK;
}

static struct escrow_module *module_new(const struct module_file *file, const char *mapped)
{
	struct escrow_module *module = g_new0(struct escrow_module, 1);

	module->path = g_strdup(file->path);
	module->mapped = g_strdup(mapped);
	memcpy(module->sha256, file->sha256, sizeof(module->sha256));
	module->state = ESCROW_MODULE_UNMAPPED;
	return module;
}

/*
 * Maps it, or says why not.  Code of what is refused then has run and may have left anything, so it is not torn out: it
 * stays in the list, for the loader gives the old object for its path for ever.
 */
static escrow_status module_try(struct escrow_module *module, struct escrow_error *error)
{
	struct escrow_error own;
	escrow_status status;
	void *left;

	error_clear(&own);
	status = module_map(module, &own);
	if (status == ESCROW_OK) {
		module->state = ESCROW_MODULE_IN_USE;
		return ESCROW_OK;
	}
	module->handle = NULL;
	left = dlopen(module->mapped, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
	if (left)
		dlclose(left);
	module->state = left ? ESCROW_MODULE_REFUSED : ESCROW_MODULE_UNMAPPED;
	g_strlcpy(module->why, own.text, sizeof(module->why));
	return error_set(error, status, "%s", own.text);
}

/* The module for a file that has been judged: the mapped one, or a new one. */
static escrow_status module_get(const struct module_file *file, const char *mapped, uint32_t flags,
				struct escrow_module **out, struct escrow_error *error)
{
	struct escrow_module *module = module_by_path(mapped);
	bool known = module != NULL;
	const char *why = "";
	escrow_status status;

	if (known && module->backend) {
		module->references++;
		module->state = ESCROW_MODULE_IN_USE;
		*out = module;
		return ESCROW_OK;
	}
	if (!known && module_count_mapped() >= modules_cap)
		return error_set(error, ESCROW_E_LIMIT,
				 "%u backend objects are mapped already, at most %u are allowed",
				 module_count_mapped(), modules_cap);
	if (!known)
		module = module_new(file, mapped);
	module->resident = !module_may_unmap(flags, &file->report, &why);
	g_strlcpy(module->why, why, sizeof(module->why));
	status = module_try(module, error);
	if (!known && module->state == ESCROW_MODULE_UNMAPPED) {
		g_free(module->path);
		g_free(module->mapped);
		g_free(module);
		return status;
	}
	if (!modules)
		modules = g_ptr_array_new();
	if (!known)
		g_ptr_array_add(modules, module);
	if (status != ESCROW_OK)
		return status;
	module->references = 1;
	*out = module;
	return ESCROW_OK;
}

/* Where to load from: not the file itself if the loader would give other bytes, which it has mapped from there. */
static escrow_status module_place(const struct escrow_load_args *args,
				  const struct module_file *file, char **mapped,
				  struct escrow_error *error)
{
	struct escrow_module *old;
	bool copy = args->flags & ESCROW_LOAD_COPY;

	g_mutex_lock(&modules_lock);
	old = module_by_path(file->real);
	copy |= old && strcmp(old->sha256, file->sha256) != 0;
	g_mutex_unlock(&modules_lock);
	if (copy)
		return file_copy(args->copy_dir, file->bytes, file->size, file->sha256, mapped,
				 error);
	*mapped = g_strdup(file->real);
	return ESCROW_OK;
}

escrow_status escrow_load(const struct escrow_load_args *args, struct escrow_module **module,
			  struct escrow_error *error)
{
	const uint32_t known = ESCROW_LOAD_COPY | ESCROW_LOAD_PROBE | ESCROW_LOAD_PROBE_OPEN |
			       ESCROW_LOAD_MAY_UNMAP;
	g_autofree char *mapped = NULL;
	struct module_file *file;
	escrow_status status = args_check(args, sizeof(*args), "load", error);

	if (status == ESCROW_OK && !module)
		status = error_set(error, ESCROW_E_INVALID, "load: nowhere to put the module");
	if (status == ESCROW_OK && (args->flags & ~known))
		status = error_set(error, ESCROW_E_UNSUPPORTED, "load: unknown flags 0x%x",
				   args->flags & ~known);
	if (status != ESCROW_OK)
		return status;
	file = g_new0(struct module_file, 1);
	status = module_file_read(args->name, file, error);
	if (status == ESCROW_OK)
		status = module_place(args, file, &mapped, error);
	if (status == ESCROW_OK)
		status = module_probe(args, mapped, error);
	if (status == ESCROW_OK) {
		g_mutex_lock(&modules_lock);
		status = module_get(file, mapped, args->flags, module, error);
		g_mutex_unlock(&modules_lock);
	}
	module_file_free(file);
	return status;
}

/* ---- Life and end ------------------------------------------------------------------------------ */
struct module_search {
	ElfW(Addr) base;
	const char *name;
	bool found;
};

static int module_is_it(struct dl_phdr_info *info, size_t size, void *data)
{
	struct module_search *search = data;

	if (info->dlpi_addr == search->base && strcmp(info->dlpi_name, search->name) == 0)
		search->found = true;
	return search->found;
}

/* U5: dlclose promises nothing (dlopen(3)); the loader's own list tells what became of it. */
static void module_unmap(struct escrow_module *module)
{
	struct module_search search = {.base = module->base, .name = module->mapped};

	module->backend = NULL;
	memset(&module->ops, 0, sizeof(module->ops));
	dlclose(module->handle);
	module->handle = NULL;
	dl_iterate_phdr(module_is_it, &search);
	module->state = search.found ? ESCROW_MODULE_STILL_MAPPED : ESCROW_MODULE_UNMAPPED;
	if (search.found)
		g_strlcpy(module->why, "still mapped after dlclose, reason unknown",
			  sizeof(module->why));
}

/* Owners of released engines pin the object absolutely (U4). */
static bool module_has_quarantine(const struct escrow_module *module)
{
	struct escrow_record record;
	uint64_t cursor = 0;

	return module->ops.records(NULL, &cursor, &record, 1, sizeof(record)) > 0;
}

static void module_maybe_retire(struct escrow_module *module)
{
	if (module->references || module->engines || module->state != ESCROW_MODULE_IN_USE)
		return;
	module->state = ESCROW_MODULE_RETIRED;
	if (!module->resident && !module_has_quarantine(module))
		module_unmap(module);
}

struct escrow_module *escrow_module_ref(struct escrow_module *module)
{
	if (!module)
		return NULL;
	g_mutex_lock(&modules_lock);
	module->references++;
	g_mutex_unlock(&modules_lock);
	return module;
}

void escrow_module_unref(struct escrow_module *module)
{
	if (!module)
		return;
	g_mutex_lock(&modules_lock);
	if (module->references)
		module->references--;
	module_maybe_retire(module);
	g_mutex_unlock(&modules_lock);
}

void module_engine_opened(struct escrow_module *module)
{
	g_mutex_lock(&modules_lock);
	module->engines++;
	module->state = ESCROW_MODULE_IN_USE;
	g_mutex_unlock(&modules_lock);
}

void module_engine_released(struct escrow_module *module)
{
	g_mutex_lock(&modules_lock);
	module->engines--;
	module_maybe_retire(module);
	g_mutex_unlock(&modules_lock);
}

const struct escrow_ops *module_ops(const struct escrow_module *module)
{
	return &module->ops;
}

const char *module_mapped(const struct escrow_module *module)
{
	return module->mapped;
}

const struct escrow_backend *module_backend(const struct escrow_module *module)
{
	return module->backend;
}

/* ---- Reports ----------------------------------------------------------------------------------- */
static void module_describe(const struct escrow_module *m, struct escrow_module_info *info,
			    uint32_t size)
{
	struct escrow_module_info full = {.size = size,
					  .state = m->state,
					  .references = m->references,
					  .engines = m->engines,
					  .revision = m->backend ? m->backend->revision : 0,
					  .resident = m->resident,
					  .backend = m->backend};

	memcpy(full.sha256, m->sha256, sizeof(full.sha256));
	g_strlcpy(full.path, m->path, sizeof(full.path));
	g_strlcpy(full.mapped, m->mapped, sizeof(full.mapped));
	g_strlcpy(full.why, m->why, sizeof(full.why));
	memcpy(info, &full, MIN(size, sizeof(full)));
}

escrow_status escrow_module_info(const struct escrow_module *module,
				 struct escrow_module_info *info)
{
	if (!module || !info || info->size < sizeof(*info))
		return ESCROW_E_INVALID;
	g_mutex_lock(&modules_lock);
	module_describe(module, info, info->size);
	g_mutex_unlock(&modules_lock);
	return ESCROW_OK;
}

int32_t escrow_modules(struct escrow_module_info *infos, uint32_t max, uint32_t stride)
{
	uint32_t n;

	if (max && (!infos || stride < sizeof(*infos) || stride % 8 != 0))
		return ESCROW_E_INVALID;
	g_mutex_lock(&modules_lock);
	n = modules ? modules->len : 0;
	for (uint32_t i = 0; i < MIN(n, max); i++)
		module_describe(g_ptr_array_index(modules, i),
				(void *)((char *)infos + (size_t)i * stride), sizeof(*infos));
	g_mutex_unlock(&modules_lock);
	return (int32_t)n;
}

uint32_t escrow_module_cap(uint32_t cap)
{
	uint32_t old;

	g_mutex_lock(&modules_lock);
	old = modules_cap;
	if (cap)
		modules_cap = cap;
	g_mutex_unlock(&modules_lock);
	return old;
}

void module_each(void (*each)(void *ctx, struct escrow_module *module), void *ctx)
{
	g_autoptr(GPtrArray) mapped = g_ptr_array_new();

	g_mutex_lock(&modules_lock);
	for (uint32_t i = 0; modules && i < modules->len; i++) {
		struct escrow_module *m = g_ptr_array_index(modules, i);

		if (!m->backend)
			continue;
		m->references++; /* it must not be unmapped while the caller looks */
		g_ptr_array_add(mapped, m);
	}
	g_mutex_unlock(&modules_lock);
	for (uint32_t i = 0; i < mapped->len; i++) {
		each(ctx, g_ptr_array_index(mapped, i));
		escrow_module_unref(g_ptr_array_index(mapped, i));
	}
}
