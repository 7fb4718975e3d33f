/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/softverbs/payload.h"

#include "tests/softverbs/adversary.h"

struct walk {
	struct pd *pd;
	const struct ibv_sge *sge;
	unsigned int count;
	uint64_t offset;
};

/* The next contiguous piece of at most 'size' bytes; NULL at the end of the list or if a key does not
 * allow it. */
static uint8_t *walk_next(struct walk *w, size_t size, bool write, size_t *piece)
{
	while (w->count && w->offset >= w->sge->length) {
		w->offset -= w->sge->length;
		w->sge++;
		w->count--;
	}
	if (!w->count)
		return NULL;
	*piece = w->sge->length - w->offset < size ? w->sge->length - w->offset : size;
	w->offset += *piece;
	return mr_local(w->pd, w->sge->lkey, w->sge->addr + w->offset - *piece, *piece, write);
}

bool payload_gather(struct pd *pd, const struct ibv_sge *sge, unsigned int count, uint64_t offset,
		    uint8_t *out, size_t size)
{
	struct walk w = {pd, sge, count, offset};
	size_t piece;

	for (; size; size -= piece, out += piece) {
		const uint8_t *from = walk_next(&w, size, false, &piece);

		if (!from)
			return false;
		memcpy(out, from, piece);
	}
	return true;
}

bool payload_scatter(struct pd *pd, const struct ibv_sge *sge, unsigned int count, uint64_t offset,
		     const uint8_t *from, size_t size)
{
	struct walk w = {pd, sge, count, offset};
	size_t piece;

	for (; size; size -= piece, from += piece) {
		uint8_t *to = walk_next(&w, size, true, &piece);

		if (!to)
			return false;
		adversary_land(to, from, piece, true);
	}
	return true;
}

bool payload_sink(struct pd *pd, const struct ibv_sge *sge, unsigned int count)
{
	unsigned int i;

	for (i = 0; i < count; i++) {
		void *to;

		if (!sge[i].length)
			continue;
		to = mr_local(pd, sge[i].lkey, sge[i].addr, sge[i].length, true);
		if (!to)
			return false;
		adversary_foul(to, sge[i].length);
	}
	return true;
}
