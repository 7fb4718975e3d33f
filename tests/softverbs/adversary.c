/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/softverbs/adversary.h"

#define FRAGMENT_PLAIN 32768u
#define LATE_MAX_NS 2000000u

static uint64_t adversary_state;
static uint64_t adversary_last_time;
static uint64_t adversary_batch_until;

void adversary_seed(uint64_t seed)
{
	adversary_state = seed * 2654435761u + 88172645463325252u;
}

/* xorshift64* (Vigna, "An experimental exploration of Marsaglia's xorshift generators"). */
uint32_t adversary_pick(uint32_t below)
{
	if (!adversary_state)
		adversary_seed(config_get()->seed);
	adversary_state ^= adversary_state >> 12;
	adversary_state ^= adversary_state << 25;
	adversary_state ^= adversary_state >> 27;
	return (uint32_t)((adversary_state * 2685821657736338717u) >> 33) % below;
}

uint64_t adversary_cqe_time(uint64_t now)
{
	if (!config_get()->adversary)
		return 0;
	/* Batches: completions that come while one is late appear together with it. */
	if (now >= adversary_batch_until)
		adversary_batch_until = now + adversary_pick(LATE_MAX_NS);
	if (adversary_batch_until > adversary_last_time)
		adversary_last_time = adversary_batch_until;
	return adversary_last_time;
}

void adversary_junk(struct ibv_wc *wc)
{
	struct ibv_wc keep = *wc;

	if (!config_get()->adversary && config_get()->personality == PERSONALITY_RXE)
		return;
	memset(wc, 0xa5, sizeof(*wc));
	wc->wr_id = keep.wr_id;
	wc->status = keep.status;
	wc->qp_num = keep.qp_num;
	wc->vendor_err = keep.vendor_err;
	/* A value of the type, but as a rule the wrong one. */
	wc->opcode = (keep.opcode & IBV_WC_RECV) ? IBV_WC_SEND : IBV_WC_RECV;
}

unsigned int adversary_rereads(void)
{
	return config_get()->adversary ? 1 + adversary_pick(2) : 0;
}

uint32_t adversary_fragment(void)
{
	return config_get()->adversary ? 256u << adversary_pick(8) : FRAGMENT_PLAIN;
}

void adversary_foul(uint8_t *to, size_t size)
{
	if (config_get()->adversary)
		memset(to, 0x80 | (int)adversary_pick(127), size);
}

void adversary_land(uint8_t *to, const uint8_t *from, size_t size, bool garbage)
{
	size_t cut = size > 1 && config_get()->adversary ? adversary_pick((uint32_t)size) : 0;

	if (garbage && config_get()->adversary)
		adversary_foul(to, size);
	memcpy(to + cut, from + cut, size - cut);
	memcpy(to, from, cut);
}
