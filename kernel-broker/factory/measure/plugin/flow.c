#include "flow.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

static size_t place(const struct pairs *all, uint64_t from, uint64_t to)
{
	uint64_t mixed = (from ^ to << 24) * UINT64_C(0x9e3779b97f4a7c15);
	size_t at = (size_t)(mixed >> 32) & (all->size - 1);

	while (all->slots[at].count &&
	       (all->slots[at].from != from || all->slots[at].to != to))
		at = (at + 1) & (all->size - 1);
	return at;
}

static int grow(struct pairs *all)
{
	struct pairs larger = { .size = all->size ? all->size * 2 : 4096 };

	larger.slots = calloc(larger.size, sizeof(struct pair));
	if (!larger.slots)
		return -1;
	for (size_t i = 0; i < all->size; i++) {
		const struct pair *old = &all->slots[i];

		if (old->count)
			larger.slots[place(&larger, old->from, old->to)] = *old;
	}
	larger.used = all->used;
	free(all->slots);
	*all = larger;
	return 0;
}

static int add(struct pairs *all, uint64_t from, uint64_t to, uint64_t count)
{
	if (all->used * 2 >= all->size && grow(all))
		return -1;

	struct pair *pair = &all->slots[place(all, from, to)];

	if (!pair->count) {
		pair->from = from;
		pair->to = to;
		all->used++;
	}
	pair->count += count;
	return 0;
}

void flow_break(struct flow *flow, const struct block *last)
{
	if (flow->begin && add(&flow->ranges, flow->begin, last->last, 1))
		flow->lost = true;
	flow->begin = 0;
}

/*
 * Whether the flow went from one block to the next by the branch at the end of
 * the first. What comes behind an interrupt did not, and a conditional branch or
 * a call says itself where it leads.
 */
static bool branched(const struct block *previous, const struct block *block)
{
	switch (previous->kind) {
	case INSN_CONDITIONAL:
		return block->start == previous->target;
	case INSN_JUMP:
		return !previous->target || block->start == previous->target;
	}
	return false;
}

static bool in_thunk(const struct flow *flow, const struct block *block)
{
	return block->start >= flow->thunks_begin &&
	       block->start < flow->thunks_end;
}

static void enter_thunk(struct flow *flow, const struct block *previous,
			const struct block *thunk)
{
	flow->site = 0;
	if (!previous || !previous->kernel)
		return;
	flow_break(flow, previous);
	if (branched(previous, thunk))
		flow->site = previous->last;
}

/* A thunk is left by a return or by a jump through a register. */
static void leave_thunk(struct flow *flow, const struct block *thunk,
			const struct block *block)
{
	bool left = thunk->kind == INSN_JUMP && !thunk->target;

	if (left && flow->site && block->kernel &&
	    add(&flow->branches, flow->site, block->start, 1))
		flow->lost = true;
	flow->begin = block->kernel ? block->start : 0;
}

void flow_run(struct flow *flow, const struct block *previous,
	      const struct block *block)
{
	bool from_thunk = previous && in_thunk(flow, previous);

	if (in_thunk(flow, block)) {
		if (!from_thunk)
			enter_thunk(flow, previous, block);
		return;
	}
	if (from_thunk) {
		leave_thunk(flow, previous, block);
		return;
	}
	if (previous && previous->kernel) {
		bool taken = branched(previous, block);

		if (!taken && previous->kind != INSN_JUMP &&
		    block->start == previous->end && flow->begin)
			return;
		flow_break(flow, previous);
		if (taken && block->kernel &&
		    add(&flow->branches, previous->last, block->start, 1))
			flow->lost = true;
	}
	flow->begin = block->kernel ? block->start : 0;
}

static int merge(const struct pairs *from, struct pairs *to)
{
	for (size_t i = 0; i < from->size; i++) {
		const struct pair *pair = &from->slots[i];

		if (pair->count && add(to, pair->from, pair->to, pair->count))
			return -1;
	}
	return 0;
}

static int by_address(const void *a, const void *b)
{
	const struct pair *left = a, *right = b;

	if (left->from != right->from)
		return left->from < right->from ? -1 : 1;
	return left->to < right->to ? -1 : left->to > right->to;
}

static void write_pairs(struct pairs *all, const char *between, FILE *to)
{
	size_t n = 0;

	for (size_t i = 0; i < all->size; i++) {
		if (all->slots[i].count)
			all->slots[n++] = all->slots[i];
	}
	if (n)
		qsort(all->slots, n, sizeof(struct pair), by_address);
	fprintf(to, "%zu\n", n);
	for (size_t i = 0; i < n; i++)
		fprintf(to, "%" PRIx64 "%s%" PRIx64 ":%" PRIu64 "\n",
			all->slots[i].from, between, all->slots[i].to,
			all->slots[i].count);
}

int flow_write(const struct flow *const *flows, size_t n, FILE *to)
{
	struct flow sum = { 0 };
	int failed = 0;

	for (size_t i = 0; i < n; i++) {
		sum.lost |= flows[i]->lost;
		failed |= merge(&flows[i]->ranges, &sum.ranges);
		failed |= merge(&flows[i]->branches, &sum.branches);
	}
	if (sum.lost) {
		errno = ENOMEM;
		failed = -1;
	}
	if (!failed) {
		write_pairs(&sum.ranges, "-", to);
		write_pairs(&sum.branches, "->", to);
	}
	flow_free(&sum);
	return failed || ferror(to) ? -1 : 0;
}

void flow_free(struct flow *flow)
{
	free(flow->ranges.slots);
	free(flow->branches.slots);
	*flow = (struct flow){ 0 };
}
