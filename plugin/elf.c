/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The format: elf(5) and the System V gABI; the GNU hash table has no man page, its layout is in
 * glibc elf/dl-lookup.c.  Every offset, count and string comes from a hostile file: nothing is
 * read but through elf_at(), which checks it against the size.
 */
#include <elf.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <glib.h>

#include "plugin/elf.h"
#include "plugin/file.h"

#if defined(__x86_64__)
#define ELF_MACHINE EM_X86_64
#elif defined(__aarch64__)
#define ELF_MACHINE EM_AARCH64
#elif defined(__riscv)
#define ELF_MACHINE EM_RISCV
#elif defined(__powerpc64__)
#define ELF_MACHINE EM_PPC64
#elif defined(__s390x__)
#define ELF_MACHINE EM_S390
#else
#error "name this machine's e_machine here"
#endif

#define ELF_MAX_SEGMENTS 256u

struct elf_file {
	const uint8_t *bytes;
	uint64_t size;
	struct elf_report *report;
	const Elf64_Ehdr *header;
	const Elf64_Phdr *segments; /* header->e_phnum of them, inside the file */
	const Elf64_Dyn *dynamic;
	uint64_t ndynamic;     /* before the end */
	const char *strings;   /* DT_STRTAB */
	uint64_t strings_size; /* of DT_STRSZ bytes those that are terminated */
};

static void elf_find(struct elf_report *report, uint32_t severity, const char *clause,
		     const char *format, ...) __attribute__((format(printf, 4, 5)));

static void elf_find(struct elf_report *report, uint32_t severity, const char *clause,
		     const char *format, ...)
{
	static const char clauses[ELF_CLAUSES][4] = {"A1", "H2", "S1", "S2", "S3", "S4"};
	struct escrow_finding *finding;
	uint32_t i = 0;
	va_list args;

	report->errors += severity == ESCROW_FINDING_ERROR;
	while (strcmp(clauses[i], clause) != 0)
		i++;
	if (report->alike[severity][i] == ELF_MAX_ALIKE)
		return;
	report->alike[severity][i]++;
	finding = &report->findings[report->n++];
	memset(finding, 0, sizeof(*finding));
	finding->severity = severity;
	g_strlcpy(finding->clause, clause, sizeof(finding->clause));
	va_start(args, format);
	vsnprintf(finding->text, sizeof(finding->text), format, args);
	va_end(args);
}

/* A broken MUST that does not make a load dangerous: an error for the suite only. */
static uint32_t elf_must(const struct elf_report *report)
{
	return report->profile == ESCROW_CHECK_STRICT ? ESCROW_FINDING_ERROR
						      : ESCROW_FINDING_WARNING;
}

/* length bytes at an aligned offset in the file; NULL if they are not there. */
static const void *elf_at(const struct elf_file *file, uint64_t offset, uint64_t length,
			  uint32_t align)
{
	if (offset > file->size || length > file->size - offset || offset % align != 0)
		return NULL;
	return file->bytes + offset;
}

/* The same for an address of the loaded object: through the segment that holds all of it. */
static const void *elf_at_address(const struct elf_file *file, uint64_t address, uint64_t length,
				  uint32_t align)
{
	for (uint32_t i = 0; i < file->header->e_phnum; i++) {
		const Elf64_Phdr *s = &file->segments[i];

		if (s->p_type != PT_LOAD || address < s->p_vaddr)
			continue;
		if (address - s->p_vaddr > s->p_filesz ||
		    length > s->p_filesz - (address - s->p_vaddr))
			continue;
		return elf_at(file, s->p_offset + (address - s->p_vaddr), length, align);
	}
	return NULL;
}

/* A string of the string table, or NULL. */
static const char *elf_string(const struct elf_file *file, uint64_t offset)
{
	return offset < file->strings_size ? file->strings + offset : NULL;
}

static bool elf_check_header(struct elf_file *file)
{
	struct elf_report *report = file->report;
	const Elf64_Ehdr *h = (const Elf64_Ehdr *)file->bytes;

	if (file->size < SELFMAG || memcmp(file->bytes, ELFMAG, SELFMAG) != 0) {
		elf_find(report, ESCROW_FINDING_ERROR, "H2",
			 "not an ELF file: it does not start with 7f 45 4c 46");
		return false;
	}
	if (file->size < sizeof(*h)) {
		elf_find(report, ESCROW_FINDING_ERROR, "H2",
			 "truncated: %" G_GUINT64_FORMAT " bytes, an ELF header has %zu",
			 file->size, sizeof(*h));
		return false;
	}
	if (h->e_ident[EI_CLASS] != ELFCLASS64 || h->e_ident[EI_DATA] != ELFDATA2LSB) {
		elf_find(report, ESCROW_FINDING_ERROR, "H2",
			 "for another machine: ELF class %u, data %u; here class 2 (64 bit), data "
			 "1 (little-endian)",
			 h->e_ident[EI_CLASS], h->e_ident[EI_DATA]);
		return false;
	}
	if (h->e_machine != ELF_MACHINE) {
		elf_find(report, ESCROW_FINDING_ERROR, "H2",
			 "for another machine: ELF machine %u, this one is %u", h->e_machine,
			 ELF_MACHINE);
		return false;
	}
	if (h->e_type != ET_DYN) {
		elf_find(report, ESCROW_FINDING_ERROR, "H2",
			 "ELF type %u is not a shared object (%u)", h->e_type, ET_DYN);
		return false;
	}
	if (h->e_phentsize != sizeof(Elf64_Phdr) || h->e_phnum == 0 ||
	    h->e_phnum > ELF_MAX_SEGMENTS) {
		elf_find(report, ESCROW_FINDING_ERROR, "H2",
			 "%u segment headers of %u bytes; allowed are 1..%u of %zu", h->e_phnum,
			 h->e_phentsize, ELF_MAX_SEGMENTS, sizeof(Elf64_Phdr));
		return false;
	}
	file->header = h;
	file->segments = elf_at(file, h->e_phoff, (uint64_t)h->e_phnum * sizeof(Elf64_Phdr), 8);
	if (!file->segments) {
		elf_find(report, ESCROW_FINDING_ERROR, "H2",
			 "truncated: segment headers at %" G_GUINT64_FORMAT " of %" G_GUINT64_FORMAT
			 " bytes",
			 (uint64_t)h->e_phoff, file->size);
		return false;
	}
	return true;
}

/* A PT_LOAD beyond the end of the file is a SIGBUS inside dlopen, see mmap(2). */
static bool elf_check_load(struct elf_file *file, const Elf64_Phdr *s, uint32_t index)
{
	struct elf_report *report = file->report;

	if (s->p_offset > file->size || s->p_filesz > file->size - s->p_offset) {
		elf_find(report, ESCROW_FINDING_ERROR, "H2",
			 "truncated: segment %u needs %" G_GUINT64_FORMAT
			 " bytes from %" G_GUINT64_FORMAT ", the file has %" G_GUINT64_FORMAT,
			 index, (uint64_t)s->p_filesz, (uint64_t)s->p_offset, file->size);
		return false;
	}
	if (s->p_memsz < s->p_filesz || s->p_vaddr > UINT64_MAX - s->p_memsz ||
	    s->p_memsz > (UINT64_C(1) << 40)) {
		elf_find(report, ESCROW_FINDING_ERROR, "H2",
			 "segment %u has impossible sizes: %" G_GUINT64_FORMAT
			 " bytes in the file, %" G_GUINT64_FORMAT " in memory",
			 index, (uint64_t)s->p_filesz, (uint64_t)s->p_memsz);
		return false;
	}
	if ((s->p_flags & PF_W) && (s->p_flags & PF_X))
		elf_find(report, elf_must(report), "S2", "segment %u is writable and executable",
			 index);
	return true;
}

/* Where the loader reads it, which goes by the address, and on to the entry that says that it is the last. */
static bool elf_find_dynamic(struct elf_file *file, const Elf64_Phdr *s)
{
	uint64_t n = s->p_filesz / sizeof(Elf64_Dyn);

	file->dynamic = elf_at_address(file, s->p_vaddr, n * sizeof(Elf64_Dyn), 8);
	while (file->dynamic && file->ndynamic < n &&
	       file->dynamic[file->ndynamic].d_tag != DT_NULL)
		file->ndynamic++;
	if (file->dynamic && file->ndynamic < n)
		return true;
	elf_find(file->report, ESCROW_FINDING_ERROR, "H2",
		 file->dynamic ? "the dynamic section has no end"
			       : "truncated: the dynamic section is in no loadable segment");
	return false;
}

static bool elf_check_segments(struct elf_file *file)
{
	struct elf_report *report = file->report;
	const Elf64_Phdr *dynamic = NULL;
	bool relro = false, loads = false, stack = true;

	for (uint32_t i = 0; i < file->header->e_phnum; i++) {
		const Elf64_Phdr *s = &file->segments[i];

		if (s->p_type == PT_LOAD && !elf_check_load(file, s, i))
			return false;
		loads |= s->p_type == PT_LOAD;
		relro |= s->p_type == PT_GNU_RELRO;
		if (s->p_type == PT_GNU_STACK)
			stack = s->p_flags & PF_X;
		if (s->p_type == PT_DYNAMIC)
			dynamic = s;
	}
	if (!loads || !dynamic) {
		elf_find(report, ESCROW_FINDING_ERROR, "H2", "no %s segment: nothing to load",
			 loads ? "dynamic" : "loadable");
		return false;
	}
	if (!elf_find_dynamic(file, dynamic))
		return false;
	if (!relro)
		elf_find(report, elf_must(report), "S2", "not linked with -z relro");
	if (stack)
		elf_find(report, elf_must(report), "S2",
			 "asks for an executable stack: link with -z noexecstack");
	return true;
}

/* The value of the entry with this tag, or fallback; of several the last, as the loader does. */
static uint64_t elf_dynamic(const struct elf_file *file, int64_t tag, uint64_t fallback)
{
	uint64_t value = fallback;

	for (uint64_t i = 0; i < file->ndynamic; i++) {
		if (file->dynamic[i].d_tag == tag)
			value = file->dynamic[i].d_un.d_val;
	}
	return value;
}

static void elf_check_flags(struct elf_file *file)
{
	struct elf_report *report = file->report;
	uint64_t flags = elf_dynamic(file, DT_FLAGS, 0);
	uint64_t flags_1 = elf_dynamic(file, DT_FLAGS_1, 0);
	uint64_t absent = UINT64_MAX;

	report->nodelete = flags_1 & DF_1_NODELETE;
	if (!report->nodelete)
		elf_find(report, elf_must(report), "S2",
			 "not linked with -z nodelete: a foreign host may unmap it under its own "
			 "threads");
	if (!(flags & DF_BIND_NOW) && !(flags_1 & DF_1_NOW) &&
	    elf_dynamic(file, DT_BIND_NOW, absent) == absent)
		elf_find(report, elf_must(report), "S2",
			 "not linked with -z now: a missing symbol would end the host later");
	if ((flags & DF_TEXTREL) || elf_dynamic(file, DT_TEXTREL, absent) != absent)
		elf_find(report, ESCROW_FINDING_ERROR, "S2",
			 "has text relocations: build it with -fPIC");
	if (flags & DF_STATIC_TLS)
		elf_find(
			report, elf_must(report), "S4",
			"uses static TLS: dlopen fails when that room is used up; no initial-exec");
	if (flags_1 & DF_1_PIE)
		elf_find(report, ESCROW_FINDING_ERROR, "H2",
			 "is a program, not a shared object: dlopen refuses it");
}

/* S3: every folder of an RPATH or RUNPATH is relative to the object itself. */
static void elf_check_search_path(struct elf_file *file, const char *what, int64_t tag)
{
	uint64_t offset = elf_dynamic(file, tag, UINT64_MAX);
	const char *folder = elf_string(file, offset);
	size_t n;

	if (!folder && offset != UINT64_MAX)
		elf_find(file->report, ESCROW_FINDING_ERROR, "H2",
			 "the %s lies outside the string table", what);
	for (; folder; folder = folder[n] ? folder + n + 1 : NULL) {
		n = strcspn(folder, ":");
		if (g_str_has_prefix(folder, "$ORIGIN") || g_str_has_prefix(folder, "${ORIGIN}"))
			continue;
		elf_find(file->report, elf_must(file->report), "S3",
			 "%s has \"%.*s\"; only folders below $ORIGIN are allowed", what,
			 (int)MIN(n, 100), folder);
	}
}

static void elf_check_needed(struct elf_file *file)
{
	elf_check_search_path(file, "RPATH", DT_RPATH);
	elf_check_search_path(file, "RUNPATH", DT_RUNPATH);
	for (uint64_t i = 0; i < file->ndynamic; i++) {
		const Elf64_Dyn *d = &file->dynamic[i];
		const char *value;

		if (d->d_tag != DT_NEEDED)
			continue;
		value = elf_string(file, d->d_un.d_val);
		if (!value) {
			elf_find(file->report, ESCROW_FINDING_ERROR, "H2",
				 "a name in the dynamic section lies outside the string table");
			continue;
		}
		file->report->links_glib |= g_str_has_prefix(value, "libglib-");
		elf_find(file->report, ESCROW_FINDING_INFO, "S3", "needs %.100s", value);
		if (strchr(value, '/'))
			elf_find(file->report, elf_must(file->report), "S3",
				 "needs \"%.100s\": a library by path, not by name", value);
	}
}

/* How many symbols DT_GNU_HASH reaches; 0 if the table is broken. */
static uint64_t elf_gnu_hash_count(const struct elf_file *file, uint64_t address)
{
	const uint32_t *head = elf_at_address(file, address, 16, 4), *buckets, *chain;
	uint64_t chains, last = 0;

	if (!head)
		return 0;
	chains = address + 16 + (uint64_t)head[2] * 8 + (uint64_t)head[0] * 4;
	buckets = elf_at_address(file, address + 16 + (uint64_t)head[2] * 8, (uint64_t)head[0] * 4,
				 4);
	if (!buckets)
		return 0;
	for (uint32_t i = 0; i < head[0]; i++)
		last = MAX(last, buckets[i]);
	if (last < head[1])
		return head[1]; /* nothing defined */
	for (;; last++) {
		chain = elf_at_address(file, chains + (last - head[1]) * 4, 4, 4);
		if (!chain)
			return 0;
		if (*chain & 1)
			return last + 1;
	}
}

static uint64_t elf_symbol_count(const struct elf_file *file)
{
	uint64_t address = elf_dynamic(file, DT_GNU_HASH, 0);
	const uint32_t *head;

	if (address)
		return elf_gnu_hash_count(file, address);
	address = elf_dynamic(file, DT_HASH, 0);
	head = address ? elf_at_address(file, address, 8, 4) : NULL;
	return head ? head[1] : 0;
}

/* One name that this file defines for others to see. */
static void elf_check_export(struct elf_file *file, const char *name, uint32_t type, bool *entry)
{
	static const char *const reserved[] = {"ibv_", "rdma_", "g_"};
	struct elf_report *report = file->report;

	if (strcmp(name, ESCROW_ENTRY) == 0) {
		*entry = type == STT_FUNC || type == STT_GNU_IFUNC;
		if (!*entry)
			elf_find(report, ESCROW_FINDING_ERROR, "A1", "%s is not a function",
				 ESCROW_ENTRY);
		return;
	}
	if (g_str_has_prefix(name, "escrow_backend_entry_"))
		return; /* another era: allowed */
	for (size_t i = 0; i < G_N_ELEMENTS(reserved); i++) {
		if (!g_str_has_prefix(name, reserved[i]))
			continue;
		elf_find(report, ESCROW_FINDING_ERROR, "S1",
			 "defines %.100s for others to see: %s* belong to libraries of the host",
			 name, reserved[i]);
		return;
	}
	elf_find(report, elf_must(report), "S1", "exports %.100s; only %s is allowed", name,
		 ESCROW_ENTRY);
}

static void elf_check_symbols(struct elf_file *file)
{
	uint64_t n = elf_symbol_count(file);
	const Elf64_Sym *symbols =
		elf_at_address(file, elf_dynamic(file, DT_SYMTAB, UINT64_MAX),
			       n > file->size ? UINT64_MAX : n * sizeof(Elf64_Sym), 8);
	bool entry = false;

	if (n == 0 || !symbols || elf_dynamic(file, DT_SYMENT, 0) != sizeof(Elf64_Sym)) {
		elf_find(file->report, ESCROW_FINDING_ERROR, "H2",
			 "the dynamic symbol table is missing or lies outside the file");
		return;
	}
	for (uint64_t i = 0; i < n; i++) {
		const Elf64_Sym *s = &symbols[i];
		uint32_t visibility = ELF64_ST_VISIBILITY(s->st_other);
		const char *name;

		file->report->unique |= ELF64_ST_BIND(s->st_info) == STB_GNU_UNIQUE;
		/* SHN_ABS: the names of version nodes */
		if (s->st_shndx == SHN_UNDEF || s->st_shndx == SHN_ABS ||
		    ELF64_ST_BIND(s->st_info) == STB_LOCAL || visibility == STV_HIDDEN ||
		    visibility == STV_INTERNAL)
			continue;
		name = elf_string(file, s->st_name);
		if (!name) {
			elf_find(file->report, ESCROW_FINDING_ERROR, "H2",
				 "symbol %" G_GUINT64_FORMAT " has a name outside the string table",
				 i);
			return;
		}
		elf_check_export(file, name, ELF64_ST_TYPE(s->st_info), &entry);
	}
	if (!entry)
		elf_find(file->report, ESCROW_FINDING_ERROR, "A1",
			 "no entry: the file itself does not define %s (a dependency does not "
			 "count)",
			 ESCROW_ENTRY);
}

static int elf_worst_first(const void *a, const void *b)
{
	const struct escrow_finding *fa = a, *fb = b;

	return (int)fb->severity - (int)fa->severity;
}

uint32_t elf_check(const uint8_t *bytes, uint64_t size, struct elf_report *report)
{
	struct elf_file file = {.bytes = bytes, .size = size, .report = report};

	if (elf_check_header(&file) && elf_check_segments(&file)) {
		file.strings_size = elf_dynamic(&file, DT_STRSZ, 0);
		file.strings = elf_at_address(&file, elf_dynamic(&file, DT_STRTAB, UINT64_MAX),
					      file.strings_size, 1);
		if (!file.strings)
			file.strings_size = 0;
		while (file.strings_size && file.strings[file.strings_size - 1])
			file.strings_size--;
		elf_check_flags(&file);
		elf_check_symbols(&file);
		elf_check_needed(&file);
	}
	qsort(report->findings, report->n, sizeof(report->findings[0]), elf_worst_first);
	return report->errors;
}

int32_t escrow_check_file(const char *path, uint32_t profile, struct escrow_finding *findings,
			  uint32_t max)
{
	g_autofree struct elf_report *report = g_new0(struct elf_report, 1);
	g_autofree uint8_t *bytes = NULL;
	uint64_t size;

	if (!path || profile > ESCROW_CHECK_STRICT || (max && !findings))
		return ESCROW_E_INVALID;
	report->profile = profile;
	if (file_read(path, &bytes, &size, NULL) != ESCROW_OK)
		return ESCROW_E_INVALID;
	elf_check(bytes, size, report);
	if (max)
		memcpy(findings, report->findings, MIN(max, report->n) * sizeof(*findings));
	return (int32_t)report->n;
}
