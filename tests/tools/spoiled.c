/* SPDX-License-Identifier: BSD-2-Clause */
/* The mock with a fault that nothing reports: of each transfer the last byte is not moved. */
#include "backends/mock/mutants/mutant.h"

static int bad_post(struct native_conn *c, struct native_wr *wr, uint32_t n, uint32_t *posted)
{
	for (uint32_t i = 0; i < n; i++)
		if ((wr[i].opcode == NATIVE_READ || wr[i].opcode == NATIVE_WRITE) && wr[i].nsge)
			wr[i].sge[wr[i].nsge - 1].length--;
	return mock_post(c, wr, n, posted);
}
#define NATIVE(t) (t)->post = bad_post

#include "backends/mock/mutants/ends.h"
