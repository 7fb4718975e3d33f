/* SPDX-License-Identifier: BSD-2-Clause */
/* ESC-ARGS: each member of each argument struct spoiled alone; strides, flags and handles. */
#include <string.h>

#include "tests/conform/case.h"
#include "tests/conform/shape.h"

/* 64 bytes: one more than a name may have. */
static const char long_name[] = "a234567890123456789012345678901234567890123456789012345678901234";

/* One member with a bad value; want2 0 = only `want` will do. */
struct spoil {
	const char *what;
	size_t at;
	size_t bytes;
	uint64_t value;
	escrow_status want;
	escrow_status want2;
};

#define MEMBER(type, member) offsetof(struct type, member), sizeof(((struct type *)NULL)->member)
#define POINTER(p) ((uint64_t)(uintptr_t)(p))

static void check_spoils(struct conform *c, const char *name, const struct spoil *list, size_t n)
{
	const struct shape *s = shape_find(name);
	const uint32_t size = (uint32_t)s->size;
	uint8_t args[SHAPE_ROOM];
	struct shapes all;
	escrow_status got;
	size_t i, mark;

	shapes_open(&all, &c->subject);
	for (i = 0; i < n; i++) {
		memset(args, 0, sizeof(args));
		s->fill(&all, args);
		memcpy(args, &size, sizeof(size));
		memcpy(args + list[i].at, &list[i].value, list[i].bytes);
		mark = guard_mark();
		got = s->call(&all, guard_copy(args, s->size));
		guard_poison(mark);
		expect(got == list[i].want || (list[i].want2 && got == list[i].want2),
		       "%s with %s gives %s, not %s", name, list[i].what, verdict_status(got),
		       verdict_status(list[i].want));
	}
	s->fill(&all, args);
	expect(s->call(&all, args) >= 0, "good %s after bad ones are refused: %s", name,
	       engine_error.text);
	shapes_close(&all);
}

static void fill_with_kv(struct shapes *all, struct escrow_open_args *args,
			 const struct escrow_kv *kv)
{
	shape_find("escrow_open_args")->fill(all, args);
	args->kv = kv;
	args->nkv = 1;
}

static void args_of_open(struct conform *c)
{
	static const struct escrow_kv no_key = {NULL, "1"}, no_value = {"quota.regions", NULL},
				      unknown = {"quota.regionz", "1"}, empty = {"", ""};
	const struct spoil list[] = {
		{"flags 1", MEMBER(escrow_open_args, flags), 1, ESCROW_E_UNSUPPORTED, 0},
		{"flags 1<<31", MEMBER(escrow_open_args, flags), UINT64_C(1) << 31,
		 ESCROW_E_UNSUPPORTED, 0},
		{"host NULL", MEMBER(escrow_open_args, host), 0, ESCROW_E_INVALID, 0},
		{"revision 0", MEMBER(escrow_open_args, revision), 0, ESCROW_E_REVISION, 0},
		{"revision 77777", MEMBER(escrow_open_args, revision), 77777, ESCROW_E_REVISION, 0},
		{"reserved0 1", MEMBER(escrow_open_args, reserved0), 1, ESCROW_E_INVALID, 0},
		{"nkv 1 and kv NULL", MEMBER(escrow_open_args, nkv), 1, ESCROW_E_INVALID, 0},
		{"engine_name NULL", MEMBER(escrow_open_args, engine_name), 0, ESCROW_E_INVALID, 0},
		{"engine_name empty", MEMBER(escrow_open_args, engine_name), POINTER(""),
		 ESCROW_E_INVALID, 0},
		{"engine_name of 64", MEMBER(escrow_open_args, engine_name), POINTER(long_name),
		 ESCROW_E_INVALID, 0},
		{"engine_name of 63", MEMBER(escrow_open_args, engine_name), POINTER(long_name + 1),
		 ESCROW_OK, 0},
	};
	const struct escrow_kv *bad[] = {&no_key, &no_value, &unknown, &empty};
	struct escrow_open_args args;
	struct shapes all;
	size_t i;

	check_spoils(c, "escrow_open_args", list, sizeof(list) / sizeof(list[0]));
	shapes_open(&all, &c->subject);
	for (i = 0; i < 4; i++) {
		fill_with_kv(&all, &args, bad[i]);
		expect_status(shape_find("escrow_open_args")->call(&all, &args), ESCROW_E_INVALID);
		if (bad[i] == &unknown)
			expect_as("CF1", strstr(engine_error.text, "quota.regionz"),
				  "the text does not name the key: %s", engine_error.text);
	}
	expect_status(all.en->o->open(NULL, (struct escrow_engine **)&i, NULL), ESCROW_E_INVALID);
	shapes_close(&all);
}

static void args_of_region(struct conform *c)
{
	const struct spoil list[] = {
		{"flags 1", MEMBER(escrow_region_args, flags), 1, ESCROW_E_UNSUPPORTED, 0},
		{"flags 1<<31", MEMBER(escrow_region_args, flags), UINT64_C(1) << 31,
		 ESCROW_E_UNSUPPORTED, 0},
		{"addr NULL", MEMBER(escrow_region_args, addr), 0, ESCROW_E_INVALID, 0},
		{"length 0", MEMBER(escrow_region_args, length), 0, ESCROW_E_INVALID, 0},
		{"length 2^64-1", MEMBER(escrow_region_args, length), UINT64_MAX, ESCROW_E_INVALID,
		 ESCROW_E_LIMIT},
		{"length that wraps", MEMBER(escrow_region_args, length), UINT64_MAX - 4096,
		 ESCROW_E_INVALID, ESCROW_E_LIMIT},
		{"memory_kind 0", MEMBER(escrow_region_args, memory_kind), 0, ESCROW_E_INVALID, 0},
		{"memory_kind 63", MEMBER(escrow_region_args, memory_kind), 63, ESCROW_E_INVALID,
		 0},
		{"memory_kind 2^32-1", MEMBER(escrow_region_args, memory_kind), UINT32_MAX,
		 ESCROW_E_INVALID, 0},
		{"device 1", MEMBER(escrow_region_args, device), 1, ESCROW_E_INVALID, 0},
		{"dmabuf_fd 0 with host memory", MEMBER(escrow_region_args, dmabuf_fd), 0,
		 ESCROW_E_INVALID, 0},
	};

	check_spoils(c, "escrow_region_args", list, sizeof(list) / sizeof(list[0]));
}

static void args_of_invite(struct conform *c)
{
	const struct spoil list[] = {
		{"flags 2", MEMBER(escrow_invite_args, flags), 2, ESCROW_E_UNSUPPORTED, 0},
		{"flags 1<<31", MEMBER(escrow_invite_args, flags), UINT64_C(1) << 31,
		 ESCROW_E_UNSUPPORTED, 0},
		{"INVITE_ANY and a name", MEMBER(escrow_invite_args, flags), ESCROW_INVITE_ANY,
		 ESCROW_E_INVALID, ESCROW_E_UNSUPPORTED},
		{"peer_name NULL", MEMBER(escrow_invite_args, peer_name), 0, ESCROW_E_INVALID, 0},
		{"peer_name empty", MEMBER(escrow_invite_args, peer_name), POINTER(""),
		 ESCROW_E_INVALID, 0},
		{"peer_name of 64", MEMBER(escrow_invite_args, peer_name), POINTER(long_name),
		 ESCROW_E_INVALID, 0},
		{"peer_name of 63", MEMBER(escrow_invite_args, peer_name), POINTER(long_name + 1),
		 ESCROW_OK, 0},
	};
	struct engine *en;
	struct escrow_invite_args args = {.size = sizeof(args), .peer_name = "x"};
	uint64_t len = 0;

	check_spoils(c, "escrow_invite_args", list, sizeof(list) / sizeof(list[0]));
	en = engine_open(&c->subject, NULL, "invite");
	expect_status(en->o->invite(en->e, NULL, NULL, &len), ESCROW_E_INVALID);
	expect_status(en->o->invite(en->e, &args, NULL, NULL), ESCROW_E_INVALID);

	engine_close(en);
}

static void args_of_peer(struct conform *c)
{
	const struct spoil list[] = {
		{"flags 1", MEMBER(escrow_peer_args, flags), 1, ESCROW_E_UNSUPPORTED, 0},
		{"flags 1<<31", MEMBER(escrow_peer_args, flags), UINT64_C(1) << 31,
		 ESCROW_E_UNSUPPORTED, 0},
		{"peer_name NULL", MEMBER(escrow_peer_args, peer_name), 0, ESCROW_E_INVALID, 0},
		{"peer_name empty", MEMBER(escrow_peer_args, peer_name), POINTER(""),
		 ESCROW_E_INVALID, 0},
		{"peer_name of 64", MEMBER(escrow_peer_args, peer_name), POINTER(long_name),
		 ESCROW_E_INVALID, 0},
		{"invitation NULL", MEMBER(escrow_peer_args, invitation), 0, ESCROW_E_INVALID, 0},
		{"invitation_len 0", MEMBER(escrow_peer_args, invitation_len), 0, ESCROW_E_INVALID,
		 0},
		{"invitation_len 2^64-1", MEMBER(escrow_peer_args, invitation_len), UINT64_MAX,
		 ESCROW_E_INVALID, 0},
	};

	check_spoils(c, "escrow_peer_args", list, sizeof(list) / sizeof(list[0]));
}

static void args_of_grant(struct conform *c)
{
	const struct spoil list[] = {
		{"rights 0", MEMBER(escrow_grant_args, rights), 0, ESCROW_E_INVALID, 0},
		{"rights 4", MEMBER(escrow_grant_args, rights), 4, ESCROW_E_UNSUPPORTED,
		 ESCROW_E_INVALID},
		{"peer 1<<63", MEMBER(escrow_grant_args, peer), UINT64_C(1) << 63, ESCROW_E_INVALID,
		 0},
		{"region 0", MEMBER(escrow_grant_args, region), 0, ESCROW_E_INVALID, 0},
		{"region 2^64-1", MEMBER(escrow_grant_args, region), UINT64_MAX, ESCROW_E_INVALID,
		 0},
		{"length 0", MEMBER(escrow_grant_args, length), 0, ESCROW_E_INVALID, 0},
		{"length region + 1", MEMBER(escrow_grant_args, length), 8193, ESCROW_E_INVALID, 0},
		{"length 2^64-1", MEMBER(escrow_grant_args, length), UINT64_MAX, ESCROW_E_INVALID,
		 0},
		{"offset 1 and all of the length", MEMBER(escrow_grant_args, offset), 1,
		 ESCROW_E_INVALID, 0},
		{"an offset that wraps", MEMBER(escrow_grant_args, offset), UINT64_MAX - 8191,
		 ESCROW_E_INVALID, 0},
	};

	check_spoils(c, "escrow_grant_args", list, sizeof(list) / sizeof(list[0]));
}

static const struct conform_case cases[] = {
	{"ESC-ARGS-001", "core", "AR1 L4 CF1", 0, NEED_MISUSE, "each member of the open args",
	 args_of_open},
	{"ESC-ARGS-002", "core", "AR2 E3", 0, NEED_MISUSE, "each member of the region args",
	 args_of_region},
	{"ESC-ARGS-003", "core", "AR3", 0, NEED_MISUSE, "each member of the invite args",
	 args_of_invite},
	{"ESC-ARGS-004", "data", "AR4", 0, NEED_MISUSE, "each member of the peer args",
	 args_of_peer},
	{"ESC-ARGS-005", "data", "AR5", 0, NEED_MISUSE, "each member of the grant args",
	 args_of_grant},
};

CONFORM_AREA(area_args, cases);
