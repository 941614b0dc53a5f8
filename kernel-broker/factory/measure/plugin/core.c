#include "core.h"

static void count(struct core *core, const struct block *block,
		  enum counter counter, uint64_t n)
{
	atomic_uint_fast64_t *c = &core->counters[block->kernel][counter];

	/* One writer: no need for a locked addition. */
	atomic_store_explicit(c,
			      atomic_load_explicit(c, memory_order_relaxed) + n,
			      memory_order_relaxed);
}

/*
 * What follows a conditional branch says which way it went. A third place is
 * an interrupt's: the branch is decided later, unseen, and is not counted.
 */
static void decide(struct core *core, const struct block *branch,
		   const struct block *next)
{
	bool taken = next->start == branch->target;

	if (!taken && next->start != branch->end)
		return;
	count(core, branch, COUNT_BRANCHES, 1);
	count(core, branch, COUNT_TAKEN_BRANCHES, taken);
	if (!gshare_right(&core->gshare, branch->last, taken))
		count(core, branch, COUNT_MISPREDICTIONS, 1);
}

/*
 * QEMU translates a repeating string instruction as the end of a block that
 * does one iteration and jumps back to the instruction, which from then on is a
 * block of its own. With -icount, and wherever blocks may be chained, it looks
 * at the count before an iteration only (repz_opt in target/i386): n iterations
 * are n + 1 runs, of which the last moves nothing. The repeats are thus the
 * iterations, and none where the count is 0. scas and cmps that end by what they
 * find leave without that last run and count one iteration too few. After an
 * interrupt the instruction begins anew, and one iteration passes for its
 * beginning; after a fault none does, as the faulting one is done twice.
 */
static bool repeats(const struct block *previous, const struct block *block)
{
	return previous && previous->kind == INSN_REP &&
	       block->kind == INSN_REP && block->instructions == 1 &&
	       previous->last == block->start;
}

void core_run(struct core *core, const struct block *block)
{
	const struct block *previous = core->previous;

	core->previous = block;
	if (repeats(previous, block)) {
		count(core, block, COUNT_REP_ITERATIONS, 1);
		count(core, block, COUNT_STRING_BYTES, block->width);
		return;
	}
	if (core->flow)
		flow_run(core->flow, previous, block);
	if (previous && previous->kind == INSN_CONDITIONAL)
		decide(core, previous, block);
	count(core, block, COUNT_INSTRUCTIONS, block->instructions);
	if (block->kind == INSN_REP)
		count(core, block, COUNT_STRINGS, 1);
	if (block->kind == INSN_JUMP)
		count(core, block, COUNT_TAKEN_BRANCHES, 1);

	uint64_t size = block->end - block->start;

	count(core, block, COUNT_L1I_MISSES,
	      lru_use(&lru_l1, core->l1i, block->start, size));
	count(core, block, COUNT_ITLB_MISSES,
	      lru_use(&lru_tlb, core->itlb, block->start, size));
}

void core_access(struct core *core, const struct block *block, uint64_t address,
		 uint64_t size)
{
	unsigned int lines = lru_use(&lru_l1, core->l1d, address, size);
	unsigned int pages = lru_use(&lru_tlb, core->dtlb, address, size);

	if (lines)
		count(core, block, COUNT_L1D_MISSES, lines);
	if (pages)
		count(core, block, COUNT_DTLB_MISSES, pages);
}

void core_break(struct core *core)
{
	core->previous = NULL;
}

void core_sum(struct core *core, struct counts *sum)
{
	for (int d = 0; d < DOMAINS; d++) {
		for (int c = 0; c < COUNTERS; c++)
			sum->of[d][c] += atomic_load_explicit(
				&core->counters[d][c], memory_order_relaxed);
	}
}
