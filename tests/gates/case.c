/* SPDX-License-Identifier: BSD-2-Clause */
/* The matrix, and what follows from a case by the rules of release. */
#include <errno.h>
#include <string.h>

#include "tests/gates/gate.h"

static const char *const failure_names[] = {
	[OBSERVER_DESTROY_QP] = "destroy_qp",     [OBSERVER_DESTROY_CHANNEL] = "destroy_channel",
	[OBSERVER_DESTROY_CQ] = "destroy_cq",     [OBSERVER_DEALLOC_PD] = "dealloc_pd",
	[OBSERVER_DEREG_MR] = "dereg_mr",         [OBSERVER_DEALLOC_MW] = "dealloc_mw",
	[OBSERVER_CLOSE_DEVICE] = "close_device",
};
static const char *const use_names[] = {
	[GATE_IDLE] = "idle", [GATE_IN_USE] = "in-use", [GATE_GRANTED] = "granted"};
static const enum observer_failure failures[] = {OBSERVER_DESTROY_QP, OBSERVER_DESTROY_CHANNEL,
						 OBSERVER_DESTROY_CQ, OBSERVER_DEALLOC_PD};

/* Each factor has a digit; the number of a case is made of them, the first factor the highest. */
#define FACTORS 7u
static const uint32_t radix[FACTORS] = {G_N_ELEMENTS(failures), 2, 2, 2, 2, 2, 2};

static void digits_of(uint32_t number, uint32_t *digits)
{
	uint32_t f;

	for (f = FACTORS; f-- > 0;) {
		digits[f] = number % radix[f];
		number /= radix[f];
	}
}

static struct gate_case case_of(uint32_t number)
{
	uint32_t d[FACTORS];

	digits_of(number, d);
	return (struct gate_case){.failure = failures[d[0]],
				  .write = d[1],
				  .source = d[2],
				  .rail = d[3],
				  .events = d[4] == 0,
				  .lanes = d[5] ? 4 : 1,
				  .weak = d[6]};
}

/* Registrations and windows, each idle, in use and granted. Loans are the requester's, grants the source's. */
static void add_parts(GArray *all)
{
	uint32_t mw, use;

	for (mw = 0; mw < 2; mw++)
		for (use = GATE_IDLE; use <= GATE_GRANTED; use++) {
			struct gate_case c = {
				.failure = mw ? OBSERVER_DEALLOC_MW : OBSERVER_DEREG_MR,
				.source = mw || use != GATE_IN_USE,
				.events = true,
				.lanes = 1,
				.use = (enum gate_use)use,
			};

			g_array_append_val(all, c);
		}
}

static void add_controls(GArray *all)
{
	uint32_t i;

	for (i = 0; i < 4; i++) {
		struct gate_case c = {.failure = OBSERVER_CLOSE_DEVICE,
				      .write = i & 1,
				      .source = i & 2,
				      .events = true,
				      .lanes = 1};

		g_array_append_val(all, c);
	}
}

GArray *gate_matrix(void)
{
	GArray *all = g_array_new(FALSE, FALSE, sizeof(struct gate_case));
	uint32_t n = 1, f, i;

	for (f = 0; f < FACTORS; f++)
		n *= radix[f];
	for (i = 0; i < n; i++) {
		struct gate_case c = case_of(i);

		g_array_append_val(all, c);
	}
	add_parts(all);
	add_controls(all);
	return all;
}

/* Every pair of two factors' values has a bit here. */
#define VALUES 4u
static uint32_t pair_bit(uint32_t f, uint32_t a, uint32_t g, uint32_t b)
{
	return ((f * VALUES + a) * FACTORS + g) * VALUES + b;
}

static uint32_t new_pairs(const uint8_t *covered, uint32_t number, uint8_t *mark)
{
	uint32_t d[FACTORS], f, g, n = 0;

	digits_of(number, d);
	for (f = 0; f < FACTORS; f++)
		for (g = f + 1; g < FACTORS; g++) {
			uint32_t bit = pair_bit(f, d[f], g, d[g]);

			n += !covered[bit];
			if (mark)
				mark[bit] = 1;
		}
	return n;
}

/* Of the full product of the factors? */
static bool is_of_product(const GArray *all, uint32_t i)
{
	const struct gate_case *c = &g_array_index(all, struct gate_case, i);

	return !c->use && !gate_on_mock(c);
}

GArray *gate_pairwise(const GArray *all)
{
	uint8_t covered[FACTORS * VALUES * FACTORS * VALUES] = {0};
	GArray *few = g_array_new(FALSE, FALSE, sizeof(struct gate_case));

	for (;;) {
		uint32_t best = 0, most = 0, i;

		for (i = 0; i < all->len; i++) {
			uint32_t n = is_of_product(all, i) ? new_pairs(covered, i, NULL) : 0;

			if (n > most) {
				most = n;
				best = i;
			}
		}
		if (!most)
			break;
		new_pairs(covered, best, covered);
		g_array_append_val(few, g_array_index(all, struct gate_case, best));
	}
	add_parts(few);
	add_controls(few);
	return few;
}

const char *gate_failure_name(enum observer_failure failure)
{
	return failure_names[failure];
}

char *gate_name(const struct gate_case *c)
{
	if (c->use)
		return g_strdup_printf("%s/%s", failure_names[c->failure], use_names[c->use]);
	if (gate_on_mock(c))
		return g_strdup_printf("%s/%s/%s", failure_names[c->failure],
				       c->write ? "write" : "read",
				       c->source ? "source" : "requester");
	return g_strdup_printf("%s/%s/%s/rail%u/%s/lanes%u/%s", failure_names[c->failure],
			       c->write ? "write" : "read", c->source ? "source" : "requester",
			       c->rail, c->events ? "events" : "polling", c->lanes,
			       c->weak ? "weak" : "strong");
}

bool gate_parse(const char *name, struct gate_case *c)
{
	g_autoptr(GArray) all = gate_matrix();
	uint32_t i;

	for (i = 0; i < all->len; i++) {
		g_autofree char *other = NULL;

		*c = g_array_index(all, struct gate_case, i);
		other = gate_name(c);
		if (strcmp(name, other) == 0)
			return true;
	}
	return false;
}

/* ---- What follows ---------------------------------------------------------------------------------- */
bool gate_on_mock(const struct gate_case *c)
{
	return c->failure == OBSERVER_CLOSE_DEVICE;
}

/* A completion queue or a channel is given up only when nothing of it is owed. Where the debt stays (weak), it
 * must be the other rail's, or the call that is to fail is never made. */
static bool debt_is_elsewhere(const struct gate_case *c)
{
	return c->weak &&
	       (c->failure == OBSERVER_DESTROY_CQ || c->failure == OBSERVER_DESTROY_CHANNEL);
}

/* A bound window is deallocated only if its invalidation is not seen to work; a loan is one that is not settled. */
static bool part_needs_debt(const struct gate_case *c)
{
	return c->failure == OBSERVER_DEALLOC_MW ? c->use != GATE_IDLE : c->use == GATE_IN_USE;
}

int gate_debt_rail(const struct gate_case *c)
{
	if (c->failure == OBSERVER_DEALLOC_PD || gate_on_mock(c) || (c->use && !part_needs_debt(c)))
		return -1;
	return (int)(debt_is_elsewhere(c) ? 1 - c->rail : c->rail);
}

bool gate_loans_stay(const struct gate_case *c)
{
	return !c->source && c->weak && c->failure != OBSERVER_DEALLOC_PD;
}

/*
 * A window that was deallocated is a proof of its own, so a weak RESET alone keeps no grant. Where the
 * queue pair's destroy is not what fails, the weak reading takes that proof away too. (With it a queue pair is
 * never destroyed: windows come first.)
 */
bool gate_windows_weak(const struct gate_case *c)
{
	return c->source && debt_is_elsewhere(c);
}

bool gate_grant_stays(const struct gate_case *c)
{
	return gate_windows_weak(c) || (c->failure == OBSERVER_DEALLOC_MW && c->use != GATE_IDLE);
}

bool gate_memory_stays(const struct gate_case *c)
{
	return gate_loans_stay(c) || gate_grant_stays(c) || c->failure == OBSERVER_DEREG_MR;
}

int gate_errno(const struct gate_case *c)
{
	switch (c->failure) {
	case OBSERVER_DESTROY_QP:
	case OBSERVER_DEREG_MR:
	case OBSERVER_DEALLOC_MW:
	case OBSERVER_CLOSE_DEVICE:
		return EIO;
	default:
		return EBUSY;
	}
}
