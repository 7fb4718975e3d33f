/* SPDX-License-Identifier: BSD-2-Clause */
/* Static checks of files that nobody's linker made: what the loader would see is what is judged, and nothing else. */
#include <config.h>

#include <dlfcn.h>
#include <elf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <gnu/libc-version.h>

#include "plugin/escrow.h"
#include "tests/lib/testing.h"
#include "tests/unit/modules.h"

#define MAX 256
#define NDYNAMIC 8

static struct escrow_finding findings[MAX];

static int check_bytes(const uint8_t *bytes, uint64_t size, uint32_t profile)
{
	int n = escrow_check_file(modules_write(bytes, size), profile, findings, MAX);

	modules_drop();
	return n;
}

static int has(int n, const char *clause, const char *text)
{
	for (int i = 0; i < n; i++) {
		if (strcmp(findings[i].clause, clause) == 0 && strstr(findings[i].text, text))
			return 1;
	}
	return 0;
}

/* ---- The dynamic section ----------------------------------------------------------------------- */
static Elf64_Phdr *segment(uint8_t *bytes, uint32_t type)
{
	const Elf64_Ehdr *h = (const Elf64_Ehdr *)bytes;
	Elf64_Phdr *s = (Elf64_Phdr *)(bytes + h->e_phoff);

	for (int i = 0; i < h->e_phnum; i++) {
		if (s[i].p_type == type)
			return &s[i];
	}
	ck_abort_msg("no segment of type %u", type);
	return NULL;
}

/* Its last entry; linkers leave room behind it. */
static Elf64_Dyn *last(uint8_t *bytes)
{
	Elf64_Dyn *d = (Elf64_Dyn *)(bytes + segment(bytes, PT_DYNAMIC)->p_offset);

	while (d->d_tag != DT_NULL)
		d++;
	return d;
}

START_TEST(of_several_entries_the_last_is_the_loaders)
{
	uint64_t size;
	uint8_t *bytes = modules_read(modules_path("fake"), &size);
	Elf64_Dyn *d = last(bytes);

	ck_assert_int_eq(d[1].d_tag, DT_NULL);
	*d = (Elf64_Dyn){.d_tag = DT_FLAGS, .d_un.d_val = DF_TEXTREL};
	ck_assert(has(check_bytes(bytes, size, ESCROW_CHECK_LOAD), "S2", "text relocations"));
	free(bytes);
}
END_TEST

START_TEST(it_is_read_where_the_loader_reads_it)
{
	uint64_t size;
	uint8_t *bytes = modules_read(modules_path("fake"), &size);

	segment(bytes, PT_DYNAMIC)->p_vaddr += UINT64_C(1) << 40;
	ck_assert(has(check_bytes(bytes, size, ESCROW_CHECK_LOAD), "H2", "dynamic section"));
	free(bytes);
}
END_TEST

START_TEST(it_must_have_an_end)
{
	uint64_t size;
	uint8_t *bytes = modules_read(modules_path("fake"), &size);
	Elf64_Phdr *s = segment(bytes, PT_DYNAMIC);

	s->p_filesz = (uint64_t)((uint8_t *)last(bytes) - bytes) - s->p_offset;
	ck_assert(has(check_bytes(bytes, size, ESCROW_CHECK_LOAD), "H2", "has no end"));
	free(bytes);
}
END_TEST

/* ---- Findings ---------------------------------------------------------------------------------- */
/* One that exports thousands of names, and no entry. */
START_TEST(many_of_a_kind_leave_room_for_others)
{
	Dl_info libc;
	int n;

	ck_assert(dladdr((void *)(uintptr_t)gnu_get_libc_version, &libc));
	for (uint32_t profile = ESCROW_CHECK_LOAD; profile <= ESCROW_CHECK_STRICT; profile++) {
		n = escrow_check_file(libc.dli_fname, profile, findings, MAX);
		ck_assert(has(n, "S1", "exports"));
		ck_assert(has(n, "A1", "no entry"));
		ck_assert(has(n, "S3", "needs"));
	}
	ck_assert_int_gt(escrow_check_file(libc.dli_fname, ESCROW_CHECK_LOAD, findings, 1), 1);
	ck_assert_str_eq(findings[0].clause, "A1");
}
END_TEST

/* ---- Large tables ------------------------------------------------------------------------------ */
struct craft {
	Elf64_Ehdr header;
	Elf64_Phdr segments[2];
	Elf64_Dyn dynamic[NDYNAMIC];
	uint32_t hash[2];
	Elf64_Sym symbols[];
};

/* So many symbols, all with the same name; it and the RUNPATH are the whole string table. */
static int check_craft(uint32_t nsymbols, char fill, uint64_t nstrings)
{
	uint64_t at = sizeof(struct craft) + nsymbols * sizeof(Elf64_Sym), size = at + nstrings;
	uint8_t *fake = modules_read(modules_path("fake"), &(uint64_t){0});
	struct craft *c = calloc(1, size);
	int n;

	ck_assert_ptr_nonnull(c);
	memcpy(&c->header, fake, sizeof(c->header));
	free(fake);
	c->header.e_phoff = offsetof(struct craft, segments);
	c->header.e_phnum = 2;
	c->segments[0] = (Elf64_Phdr){.p_type = PT_LOAD, .p_filesz = size, .p_memsz = size};
	c->segments[1] = (Elf64_Phdr){.p_type = PT_DYNAMIC,
				      .p_offset = offsetof(struct craft, dynamic),
				      .p_vaddr = offsetof(struct craft, dynamic),
				      .p_filesz = sizeof(c->dynamic)};
	memcpy(c->dynamic,
	       (const Elf64_Dyn[]){{DT_STRTAB, {at}},
				   {DT_STRSZ, {nstrings}},
				   {DT_SYMTAB, {offsetof(struct craft, symbols)}},
				   {DT_SYMENT, {sizeof(Elf64_Sym)}},
				   {DT_HASH, {offsetof(struct craft, hash)}},
				   {DT_RUNPATH, {0}}},
	       6 * sizeof(Elf64_Dyn));
	c->hash[1] = nsymbols;
	for (uint32_t i = 0; i < nsymbols; i++) {
		c->symbols[i].st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC);
		c->symbols[i].st_shndx = 1;
	}
	memset((char *)c + at, fill, nstrings - 1);
	n = check_bytes((const uint8_t *)c, size, ESCROW_CHECK_LOAD);
	free(c);
	return n;
}

START_TEST(a_search_path_of_any_length_ends_nothing)
{
	struct rlimit limit = {UINT64_C(1) << 30, UINT64_C(1) << 30};
	int n;

	if (getenv("SANITIZERS") && *getenv("SANITIZERS"))
		return; /* they need more addresses than that */
	ck_assert_int_eq(setrlimit(RLIMIT_AS, &limit), 0);
	n = check_craft(1, ':', UINT64_C(32) << 20);
	ck_assert(has(n, "S3", "RUNPATH"));
}
END_TEST

/* 400000 times 16 MiB are not looked through. */
START_TEST(a_name_of_any_length_is_looked_at_once)
{
	ck_assert(has(check_craft(400000, 'x', UINT64_C(16) << 20), "S1", "exports xxx"));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("elf-hostile");
	TCase *tcase = tcase_create("files");

	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, of_several_entries_the_last_is_the_loaders);
	tcase_add_test(tcase, it_is_read_where_the_loader_reads_it);
	tcase_add_test(tcase, it_must_have_an_end);
	tcase_add_test(tcase, many_of_a_kind_leave_room_for_others);
	tcase_add_test(tcase, a_search_path_of_any_length_ends_nothing);
	tcase_add_test(tcase, a_name_of_any_length_is_looked_at_once);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
