/* SPDX-License-Identifier: BSD-2-Clause */
/* The frame of every exported call: the lock, the check of the handle, the script's verdict, the record. */
#ifndef SOFTVERBS_SCRIPT_H
#define SOFTVERBS_SCRIPT_H

#include "tests/softverbs/device.h"
#include "tests/softverbs/softverbs.h"

struct call {
	const char *name;
	struct object *obj;
	/* The number of 'obj', for the record after the object is gone. */
	struct object trace;
	enum softverbs_verdict verdict;
	int errnum;
	int rc;
};

/* Takes the lock, checks the handle (unless NULL) and asks the script. */
void call_begin(struct call *call, const char *name, struct object *obj, enum object_type type);
/* The same for a destroy verb of an object on 'ctx' (or NULL). On a fatal context it lies: mlx5 then answers success without talking to
 * the device (kernel mlx5/core/cmd.c). EIO is a lie where the EIO switch is on. */
void call_begin_destroy(struct call *call, const char *name, struct object *obj,
			enum object_type type, const struct context *ctx);
/* A call on a context whose device was removed answers EIO; on a fatal one it lies, as above. */
void call_on_context(struct call *call, const struct context *ctx);
/* Whether the call is to do what it is for. */
static inline bool call_runs(const struct call *call)
{
	return call->verdict == SOFTVERBS_OK || call->verdict == SOFTVERBS_FAIL_EFFECT;
}
/* Records, drops the lock and gives the value to return: 0 or a positive errno. */
int call_end(struct call *call);
/* The same for a destroy verb: a failed one breaks the handle, unless it was refused before effect. */
int call_end_destroy(struct call *call);
/* The same for a call that returns a pointer: 'made' is what was made, or NULL with call->rc set. */
void *call_end_create(struct call *call, void *made);

#endif
