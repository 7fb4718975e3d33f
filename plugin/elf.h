/* SPDX-License-Identifier: BSD-2-Clause */
/* Static checks of a backend's file, on its bytes in memory: nothing of it runs, nothing is trusted. */
#ifndef ELF_H
#define ELF_H

#include <stdbool.h>
#include <stdint.h>

#include "plugin/escrow.h"

/* Of one severity and one clause so many are kept, so that they leave room for what else there is. */
#define ELF_MAX_ALIKE 10u
#define ELF_SEVERITIES 3u
#define ELF_CLAUSES 6u
#define ELF_MAX_FINDINGS (ELF_MAX_ALIKE * ELF_SEVERITIES * ELF_CLAUSES)

struct elf_report {
	uint32_t profile;                            /* ESCROW_CHECK_* */
	uint32_t n;                                  /* kept; worst first */
	uint32_t errors;                             /* left-out ones too */
	uint32_t alike[ELF_SEVERITIES][ELF_CLAUSES]; /* kept */
	bool nodelete;                               /* DF_1_NODELETE: dlclose will not unmap it */
	bool unique;     /* has STB_GNU_UNIQUE symbols: the same (dlopen(3) is silent, ld.so(8)) */
	bool links_glib; /* needs libglib: see clause U2 */
	struct escrow_finding findings[ELF_MAX_FINDINGS];
};

/* Fills *report (whose profile is set) from the bytes.  Returns report->errors. */
uint32_t elf_check(const uint8_t *bytes, uint64_t size, struct elf_report *report);

#endif
