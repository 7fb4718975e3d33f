/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ESC-LAYOUT: every struct in three sizes.  Smaller than revision 1 is refused and nothing beyond
 * its end is read; equal works; larger works with a zero tail and is refused with another; a
 * struct that is written is never written beyond the size the caller said.
 */
#include <string.h>

#include "tests/conform/case.h"
#include "abi/revision1.h"
#include "tests/conform/shape.h"

#define TAIL 24u

/* The struct in guarded memory with `size` bytes, of which the first are the good arguments. */
static escrow_status call_sized(const struct shape *s, struct shapes *all, size_t size,
				uint8_t tail)
{
	uint8_t whole[SHAPE_ROOM] = {0};
	uint32_t told = (uint32_t)size;
	escrow_status status;
	uint8_t *args;
	size_t mark;

	s->fill(all, whole);
	mark = guard_mark();
	args = guard_new(size);
	memcpy(args, whole, size < s->size ? size : s->size);
	if (size >= 4)
		memcpy(args, &told, 4);
	if (size > s->size)
		args[size - 1] = tail;
	status = s->call(all, args);
	guard_poison(mark);
	return status;
}

static void check_sizes(struct conform *c, const char *name)
{
	const struct shape *s = shape_find(name);
	struct shapes all;
	size_t size;

	shapes_open(&all, &c->subject);
	expect(call_sized(s, &all, s->size, 0) >= 0,
	       "a %s of the size of revision 1 is refused: %s", name, engine_error.text);
	for (size = 8; size < s->size; size += 8)
		expect_status_as("L6", call_sized(s, &all, size, 0), ESCROW_E_INVALID);

	expect_as("L5", call_sized(s, &all, s->size + TAIL, 0) >= 0,
		  "a longer %s with a zero tail is refused: %s", name, engine_error.text);
	expect_status_as("L5", call_sized(s, &all, s->size + TAIL, 1), ESCROW_E_UNSUPPORTED);
	expect_status_as("L5", call_sized(s, &all, s->size + 4096, 0x80), ESCROW_E_UNSUPPORTED);
	shapes_close(&all);
}

static void sizes_of_open(struct conform *c)
{
	check_sizes(c, "escrow_open_args");
}

static void sizes_of_region(struct conform *c)
{
	check_sizes(c, "escrow_region_args");
}

static void sizes_of_invite(struct conform *c)
{
	check_sizes(c, "escrow_invite_args");
}

static void sizes_of_peer(struct conform *c)
{
	check_sizes(c, "escrow_peer_args");
}

static void sizes_of_grant(struct conform *c)
{
	check_sizes(c, "escrow_grant_args");
}

/* query into a struct of `size` bytes that stands in the middle of a pattern. */
static escrow_status query_sized(struct engine *en, uint32_t size, uint8_t *out)
{
	memset(out, 0x5e, SHAPE_ROOM);
	memcpy(out, &size, 4);
	return en->o->query(en->e, (struct escrow_limits *)(void *)out);
}

static void sizes_of_limits(struct conform *c)
{
	struct engine *en = engine_open(&c->subject, NULL, "limits");
	uint8_t *out = guard_new(SHAPE_ROOM);
	struct escrow_limits *edge = guard_new(sizeof(*edge));
	uint32_t size, i, told;

	for (size = 8; size < ABI_R1(escrow_limits); size += 8) {
		expect_status_as("L6", query_sized(en, size, out), ESCROW_E_INVALID);
		for (i = 4; i < SHAPE_ROOM; i++)
			expect_as("L7", out[i] == 0x5e, "a query that failed wrote at byte %u", i);
	}
	size = ABI_R1(escrow_limits);
	expect_status_as("L7", query_sized(en, size, out), ESCROW_OK);
	for (i = size; i < SHAPE_ROOM; i++)
		expect_as("L7", out[i] == 0x5e, "query of %u bytes wrote at byte %u", size, i);
	expect_status_as("L7", query_sized(en, size + 16, out), ESCROW_OK);
	memcpy(&told, out, 4);
	expect_as("L7", told == size || told == size + 16, "query set the size to %u", told);
	for (i = size + 16; i < SHAPE_ROOM; i++)
		expect_as("L7", out[i] == 0x5e, "query of %u bytes wrote at byte %u", size + 16, i);
	edge->size = sizeof(*edge);
	expect_status_as("L7", en->o->query(en->e, edge), ESCROW_OK);
	expect_status(en->o->query(en->e, NULL), ESCROW_E_INVALID);
	engine_close(en);
}

/* An error struct at the end of a page, and none, in calls that fail. */
static void sizes_of_error(struct conform *c)
{
	struct engine *en = engine_open(&c->subject, NULL, "error");
	struct escrow_region_args args = {.size = sizeof(args)};
	struct escrow_error *error = guard_new(sizeof(*error));
	uint8_t *big = guard_new(512);
	uint64_t region = UNTOUCHED;
	uint32_t size = 512, i;

	expect_status(en->o->register_memory(en->e, &args, &region, NULL), ESCROW_E_INVALID);
	error->size = sizeof(*error);
	expect_status(en->o->register_memory(en->e, &args, &region, error), ESCROW_E_INVALID);
	expect_as("E2", error->text[0] && memchr(error->text, 0, sizeof(error->text)),
		  "no error text, or not terminated");
	memset(big, 0x5e, 512);
	memcpy(big, &size, 4);
	expect_status(
		en->o->register_memory(en->e, &args, &region, (struct escrow_error *)(void *)big),
		ESCROW_E_INVALID);
	for (i = sizeof(*error); i < 512; i++)
		expect(big[i] == 0x5e || big[i] == 0, "wrote at byte %u of a struct escrow_error",
		       i);
	for (size = 0; size < sizeof(*error); size += 8) {
		memset(big, 0x5e, 512);
		memcpy(big, &size, 4);
		expect(en->o->register_memory(en->e, &args, &region,
					      (struct escrow_error *)(void *)big) < 0,
		       "bad arguments are accepted");
		for (i = size > 4 ? size : 4; i < 512; i++)
			expect(big[i] == 0x5e, "wrote at byte %u of a struct escrow_error of %u", i,
			       size);
	}
	expect_as("E3", region == UNTOUCHED, "a call that failed wrote its output");
	engine_close(en);
}

/* Settings with a larger stride; and strides that are none. */
static void stride_of_settings(struct conform *c)
{
	struct shapes all;
	struct escrow_open_args args;
	uint8_t *kv;

	shapes_open(&all, &c->subject);
	shape_find("escrow_open_args")->fill(&all, &args);
	kv = guard_new(40);
	memcpy(kv, &(struct escrow_kv){"quota.regions", "0"}, 16);
	args.kv = (const struct escrow_kv *)(void *)kv;
	args.nkv = 1;
	args.kv_stride = 40;
	if (!subject_has_option(&c->subject, "quota.regions"))
		args.nkv = 0;
	expect(shape_find("escrow_open_args")->call(&all, &args) >= 0,
	       "kv_stride 40 is refused: %s", engine_error.text);
	args.nkv = 1;
	args.kv_stride = 8;
	expect_status(shape_find("escrow_open_args")->call(&all, &args), ESCROW_E_INVALID);
	args.kv_stride = 20;
	expect_status(shape_find("escrow_open_args")->call(&all, &args), ESCROW_E_INVALID);
	args.kv_stride = 0;
	expect_status(shape_find("escrow_open_args")->call(&all, &args), ESCROW_E_INVALID);
	shapes_close(&all);
}

static const struct conform_case cases[] = {
	{"ESC-LAYOUT-001", "core", "L1 L5 L6", 0, NEED_MISUSE, "open args in three sizes",
	 sizes_of_open},
	{"ESC-LAYOUT-002", "core", "L1 L5 L6", 0, NEED_MISUSE, "region args in three sizes",
	 sizes_of_region},
	{"ESC-LAYOUT-003", "core", "L1 L5 L6", 0, NEED_MISUSE, "invite args in three sizes",
	 sizes_of_invite},
	{"ESC-LAYOUT-004", "data", "L1 L5 L6", 0, NEED_MISUSE, "peer args in three sizes",
	 sizes_of_peer},
	{"ESC-LAYOUT-005", "data", "L1 L5 L6", 0, NEED_MISUSE, "grant args in three sizes",
	 sizes_of_grant},
	{"ESC-LAYOUT-006", "core", "L7 L6", 0, NEED_MISUSE, "limits in three sizes",
	 sizes_of_limits},
	{"ESC-LAYOUT-007", "core", "L7 E2", 0, NEED_MISUSE, "error structs in many sizes",
	 sizes_of_error},
	{"ESC-LAYOUT-008", "core", "L8", 0, NEED_MISUSE, "settings with several strides",
	 stride_of_settings},
};

CONFORM_AREA(area_layout, cases);
