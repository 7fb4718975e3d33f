/* SPDX-License-Identifier: BSD-2-Clause */
/* A link with a window to write through, the setting of most questions to the kernel's verbs. */
#ifndef SCENE_H
#define SCENE_H

#include "tests/softroce/link.h"

#define PAGE 4096u
#define MIB 1048576u
#define DEPTH 64u /* work requests a queue of the link takes */

/* A window over 'target' on a link, and a source to write through it from. */
struct scene {
	struct link link;
	struct memory source, target;
	struct window window;
	uint64_t address; /* of the target, where the responder is */
};

/* 'source' and 'target' are sizes in bytes. */
void scene_open(struct scene *scene, struct device *device, size_t source, size_t target);
/* Fails the test if any object is not released. 'window.mw' NULL: it was released before. */
void scene_close(struct scene *scene);

/*
 * Writes a page of 'value' over 'link' to the start of the target; returns the status of its
 * completion, which must be the next on that link.
 */
enum ibv_wc_status scene_write_page(struct scene *scene, struct link *link, uint32_t rkey,
				    unsigned char value);
/* Posts DEPTH WRITEs of 1 MiB, one behind the other in the target; each one's id is its offset. */
void scene_write_queue(struct scene *scene);

#endif
