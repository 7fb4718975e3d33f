/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/conform/fault.h"

#include "tests/conform/guard.h"
#include "tests/conform/trail.h"

const struct escrow_fault *fault_table(struct engine *en)
{
	const struct escrow_fault *f = NULL;

	if (en->o->get_extension)
		f = en->o->get_extension(en->e, ESCROW_FAULT_ID);
	expect_as("X3", f && f->size >= sizeof(*f) && f->plan && f->calls,
		  "opened with test.faults=1, it does not offer " ESCROW_FAULT_ID);
	return f;
}

void fault_plan(struct engine *en, const char *plan)
{
	struct escrow_error error = {.size = sizeof(error)};
	size_t mark = guard_mark();
	escrow_status status = fault_table(en)->plan(en->e, guard_string(plan), &error);

	guard_poison(mark);
	trail("%s: plan %s: %s", en->name, plan, verdict_status(status));
	expect_as("X3", status == ESCROW_OK, "the fault plan \"%s\" gives %s: %s", plan,
		  verdict_status(status), error.text);
}

int64_t fault_calls(struct engine *en, uint32_t step)
{
	return fault_table(en)->calls(en->e, step);
}

int64_t fault_all_calls(struct engine *en)
{
	int64_t sum = 0;
	uint32_t step;

	for (step = ESCROW_STEP_REGISTER; step <= ESCROW_STEP_CLOSE_DEVICE; step++)
		sum += fault_calls(en, step);
	return sum;
}
