/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a test says to the fake backend, through get_extension.  The fake keeps ops and regions until
 * it is told how they end, so that a test decides every moment itself.
 */
#ifndef FAKE_H
#define FAKE_H

#include <escrow/backend.h>

#define FAKE_ID "test.fake/1"
#define FAKE_GUEST 8u /* the peer that came by an invitation, once PEER_UP says so */

struct fake_control {
	uint32_t size;
	uint32_t reserved0;
	/* Ends the oldest op that is outstanding: OP_DONE with this custody; then, for one that
	 * ended HELD, OP_RETURNED.  Returns 1 if there was one. */
	int (*finish)(struct escrow_engine *engine, uint8_t custody);
	int (*give_back)(struct escrow_engine *engine);
	/* deregister_memory from now on: 0 releases, 1 ends in quarantine */
	void (*stick)(struct escrow_engine *engine, int yes);
	/* the receipt for regions in quarantine: they are released after all */
	void (*unstick)(struct escrow_engine *engine);
	uint32_t (*regions)(struct escrow_engine *engine);
	/* Any event, however untrue; seq is set.  The descriptor stays readable from then on. */
	void (*say)(struct escrow_engine *engine, const struct escrow_event *event);
	/* poll and transfer from now on answer so many more than is true */
	void (*exaggerate)(struct escrow_engine *engine, int32_t more);
	/* poll from now on tells nothing, or all that came meanwhile */
	void (*mute)(struct escrow_engine *engine, int yes);
	/* transfer from now on answers E_AGAIN, or not */
	void (*fill)(struct escrow_engine *engine, int yes);
	/* ... and the next one calls this when it has taken its ops, before it returns */
	void (*at_transfer)(struct escrow_engine *engine, void (*call)(void));
};

#endif
