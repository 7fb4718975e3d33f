/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/softroce/scene.h"
#include "tests/lib/testing.h"

#include <string.h>

void scene_open(struct scene *scene, struct device *device, size_t source, size_t target)
{
	link_open(&scene->link, device, DEPTH);
	memory_open(&scene->source, device, source, IBV_ACCESS_LOCAL_WRITE);
	memory_open(&scene->target, device, target, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	scene->address = (uintptr_t)scene->target.bytes;
	scene->window.mw = ibv_alloc_mw(device->pd, IBV_MW_TYPE_2);
	ck_assert_ptr_nonnull(scene->window.mw);
	link_bind(&scene->link, &scene->window, &scene->target);
}

/* The window is released before its QP and before the registration under it. */
void scene_close(struct scene *scene)
{
	if (scene->window.mw)
		ck_assert_int_eq(ibv_dealloc_mw(scene->window.mw), 0);
	link_close(&scene->link);
	memory_close(&scene->source);
	memory_close(&scene->target);
}

enum ibv_wc_status scene_write_page(struct scene *scene, struct link *link, uint32_t rkey,
				    unsigned char value)
{
	struct write write = {&scene->source, scene->address, 0, PAGE, rkey};
	struct ibv_wc wc;

	memset(scene->source.bytes, value, PAGE);
	ck_assert_int_eq(link_write(link, &write), 0);
	ck_assert(link_next(link, link->requester_cq, &wc));
	return wc.status;
}

void scene_write_queue(struct scene *scene)
{
	struct write write = {&scene->source, scene->address, 0, MIB, scene->window.rkey};

	for (uint32_t i = 0; i < DEPTH; i++) {
		write.offset = (uint64_t)i * MIB;
		ck_assert_int_eq(link_write(&scene->link, &write), 0);
	}
}
