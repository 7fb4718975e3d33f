/* SPDX-License-Identifier: BSD-2-Clause */
/* Static checks: every broken file gets one clear line, and hostile bytes never more than that. */
#include <elf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "plugin/escrow.h"
#include "tests/lib/testing.h"
#include "tests/unit/modules.h"

#define MAX 64

static struct escrow_finding findings[MAX];

/* Writes bytes to a file and checks it; how many findings there are. */
static int check_bytes(const uint8_t *bytes, uint64_t size, uint32_t profile)
{
	int n = escrow_check_file(modules_write(bytes, size), profile, findings, MAX);

	modules_drop();
	return n;
}

static int errors(int n)
{
	int found = 0;

	for (int i = 0; i < n; i++)
		found += findings[i].severity == ESCROW_FINDING_ERROR;
	return found;
}

/* The first finding is an error of this clause, and says so. */
static void assert_refused(int n, const char *clause, const char *text)
{
	ck_assert_int_ge(n, 1);
	ck_assert_int_eq(findings[0].severity, ESCROW_FINDING_ERROR);
	ck_assert_str_eq(findings[0].clause, clause);
	ck_assert_msg(strstr(findings[0].text, text) != NULL, "\"%s\" does not say \"%s\"",
		      findings[0].text, text);
}

static int has(int n, const char *clause, const char *text)
{
	for (int i = 0; i < n; i++) {
		if (strcmp(findings[i].clause, clause) == 0 && strstr(findings[i].text, text))
			return 1;
	}
	return 0;
}

START_TEST(a_good_module_has_no_error)
{
	for (uint32_t profile = ESCROW_CHECK_LOAD; profile <= ESCROW_CHECK_STRICT; profile++) {
		int n = escrow_check_file(modules_path("fake"), profile, findings, MAX);

		ck_assert_int_ge(n, 1); /* what it needs */
		if (!getenv("SANITIZERS") || !*getenv("SANITIZERS"))
			ck_assert_msg(errors(n) == 0, "%s", findings[0].text);
		ck_assert(has(n, "S3", "needs libc.so"));
	}
}
END_TEST

START_TEST(no_elf_is_refused)
{
	assert_refused(check_bytes((const uint8_t *)"#!/bin/sh\n", 10, ESCROW_CHECK_LOAD), "H2",
		       "not an ELF file");
	assert_refused(check_bytes((const uint8_t *)"", 0, ESCROW_CHECK_LOAD), "H2",
		       "not an ELF file");
	ck_assert_int_eq(escrow_check_file("/nonexistent/x.so", 0, findings, MAX),
			 ESCROW_E_INVALID);
	ck_assert_int_eq(escrow_check_file("/tmp", 0, findings, MAX), ESCROW_E_INVALID);
	ck_assert_int_eq(escrow_check_file("/dev/zero", 0, findings, MAX), ESCROW_E_INVALID);
	ck_assert_int_eq(escrow_check_file(NULL, 0, findings, MAX), ESCROW_E_INVALID);
	ck_assert_int_eq(escrow_check_file("/tmp", 2, findings, MAX), ESCROW_E_INVALID);
}
END_TEST

START_TEST(a_truncated_file_is_refused)
{
	uint64_t size, end = 0;
	uint8_t *bytes = modules_read(modules_path("fake"), &size);
	const Elf64_Ehdr *h = (const Elf64_Ehdr *)bytes;
	const Elf64_Phdr *s = (const Elf64_Phdr *)(bytes + h->e_phoff);

	for (int i = 0; i < h->e_phnum; i++) {
		if (s[i].p_type == PT_LOAD && s[i].p_offset + s[i].p_filesz > end)
			end = s[i].p_offset + s[i].p_filesz;
	}
	/* One byte less than the last loadable byte, and from there down. */
	assert_refused(check_bytes(bytes, end - 1, ESCROW_CHECK_LOAD), "H2", "truncated");
	assert_refused(check_bytes(bytes, 100, ESCROW_CHECK_LOAD), "H2", "truncated");
	assert_refused(check_bytes(bytes, 20, ESCROW_CHECK_LOAD), "H2", "truncated");
	free(bytes);
}
END_TEST

START_TEST(another_machine_is_refused)
{
	uint64_t size;
	uint8_t *bytes = modules_read(modules_path("fake"), &size);
	Elf64_Ehdr *h = (Elf64_Ehdr *)bytes;

	h->e_machine = EM_SPARC;
	assert_refused(check_bytes(bytes, size, ESCROW_CHECK_LOAD), "H2", "another machine");
	free(bytes);
	bytes = modules_read(modules_path("fake"), &size);
	bytes[EI_CLASS] = ELFCLASS32;
	assert_refused(check_bytes(bytes, size, ESCROW_CHECK_LOAD), "H2", "another machine");
	bytes[EI_CLASS] = ELFCLASS64;
	((Elf64_Ehdr *)bytes)->e_type = ET_EXEC;
	assert_refused(check_bytes(bytes, size, ESCROW_CHECK_LOAD), "H2", "not a shared object");
	free(bytes);
}
END_TEST

START_TEST(the_entry_must_be_its_own)
{
	int n = escrow_check_file(modules_path("bad-none"), ESCROW_CHECK_LOAD, findings, MAX);

	assert_refused(n, "A1", "no entry");
	n = escrow_check_file(modules_path("bad-depend"), ESCROW_CHECK_LOAD, findings, MAX);
	assert_refused(n, "A1", "no entry");
	ck_assert(has(n, "S3", "needs fake.so"));
}
END_TEST

START_TEST(foreign_names_are_refused)
{
	int n = escrow_check_file(modules_path("bad-export"), ESCROW_CHECK_LOAD, findings, MAX);

	assert_refused(n, "S1", "ibv_fake_open");
	ck_assert(has(n, "S2", "nodelete"));
}
END_TEST

START_TEST(another_export_is_an_error_for_the_suite_only)
{
	int n = escrow_check_file(modules_path("bad-none"), ESCROW_CHECK_LOAD, findings, MAX);

	ck_assert_int_eq(errors(n), 1); /* no entry */
	ck_assert(has(n, "S1", "depend_answer"));
	n = escrow_check_file(modules_path("bad-none"), ESCROW_CHECK_STRICT, findings, MAX);
	ck_assert_int_ge(errors(n), 2);
	n = escrow_check_file(modules_path("bad-unmap"), ESCROW_CHECK_STRICT, findings, MAX);
	ck_assert(has(n, "S2", "nodelete"));
	ck_assert_int_ge(errors(n), 1);
}
END_TEST

/* Finds the dynamic entry with this tag. */
static Elf64_Dyn *dynamic(uint8_t *bytes, int64_t tag)
{
	const Elf64_Ehdr *h = (const Elf64_Ehdr *)bytes;
	const Elf64_Phdr *s = (const Elf64_Phdr *)(bytes + h->e_phoff);

	for (int i = 0; i < h->e_phnum; i++) {
		if (s[i].p_type != PT_DYNAMIC)
			continue;
		for (Elf64_Dyn *d = (Elf64_Dyn *)(bytes + s[i].p_offset); d->d_tag; d++) {
			if (d->d_tag == tag)
				return d;
		}
	}
	ck_abort_msg("no dynamic entry %lld", (long long)tag);
	return NULL;
}

START_TEST(flags_of_the_linker_are_judged)
{
	uint64_t size;
	uint8_t *bytes = modules_read(modules_path("fake"), &size);
	uint64_t old = dynamic(bytes, DT_FLAGS)->d_un.d_val;

	dynamic(bytes, DT_FLAGS)->d_un.d_val = old | DF_STATIC_TLS;
	ck_assert(has(check_bytes(bytes, size, ESCROW_CHECK_STRICT), "S4", "static TLS"));
	dynamic(bytes, DT_FLAGS)->d_un.d_val = old | DF_TEXTREL;
	assert_refused(check_bytes(bytes, size, ESCROW_CHECK_LOAD), "S2", "text relocations");
	dynamic(bytes, DT_FLAGS)->d_un.d_val = 0;
	dynamic(bytes, DT_FLAGS_1)->d_un.d_val = DF_1_NODELETE;
	ck_assert(has(check_bytes(bytes, size, ESCROW_CHECK_STRICT), "S2", "-z now"));
	/* a SONAME becomes a RUNPATH with the same text: not below $ORIGIN */
	dynamic(bytes, DT_SONAME)->d_tag = DT_RUNPATH;
	ck_assert(has(check_bytes(bytes, size, ESCROW_CHECK_STRICT), "S3", "RUNPATH"));
	free(bytes);
}
END_TEST

/* Every byte of the headers and of the dynamic section, and every eighth of the rest, altered. */
START_TEST(altered_bytes_do_no_harm)
{
	uint64_t size;
	uint8_t *bytes = modules_read(modules_path("fake"), &size);
	const Elf64_Ehdr *h = (const Elf64_Ehdr *)bytes;
	uint64_t dense = h->e_phoff + (uint64_t)h->e_phnum * sizeof(Elf64_Phdr);
	uint64_t first = (uint64_t)((uint8_t *)dynamic(bytes, DT_STRTAB) - bytes) & ~511ull;
	static const uint8_t values[] = {0x00, 0xff, 0x7f};

	for (uint64_t at = 0; at < size; at++) {
		int near = at < dense || (at >= first && at < first + 1024);

		if (!near && at % 64 != 0)
			continue;
		for (size_t v = 0; v < sizeof(values); v++) {
			uint8_t old = bytes[at];

			bytes[at] = values[v];
			ck_assert_int_ge(check_bytes(bytes, size, ESCROW_CHECK_STRICT), 0);
			bytes[at] = old;
		}
	}
	free(bytes);
}
END_TEST

START_TEST(findings_are_counted_beyond_the_room)
{
	int n = escrow_check_file(modules_path("fake"), ESCROW_CHECK_LOAD, NULL, 0);

	ck_assert_int_eq(n, escrow_check_file(modules_path("fake"), 0, findings, MAX));
	ck_assert_int_eq(n, escrow_check_file(modules_path("fake"), 0, findings, 1));
	ck_assert_int_eq(escrow_check_file(modules_path("fake"), 0, NULL, 1), ESCROW_E_INVALID);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("elf");
	TCase *tcase = tcase_create("files");

	tcase_set_timeout(tcase, 120);
	tcase_add_test(tcase, a_good_module_has_no_error);
	tcase_add_test(tcase, no_elf_is_refused);
	tcase_add_test(tcase, a_truncated_file_is_refused);
	tcase_add_test(tcase, another_machine_is_refused);
	tcase_add_test(tcase, the_entry_must_be_its_own);
	tcase_add_test(tcase, foreign_names_are_refused);
	tcase_add_test(tcase, another_export_is_an_error_for_the_suite_only);
	tcase_add_test(tcase, flags_of_the_linker_are_judged);
	tcase_add_test(tcase, altered_bytes_do_no_harm);
	tcase_add_test(tcase, findings_are_counted_beyond_the_room);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
