/*
 * One virtual processor as the plugin sees it: which block ran last, what its
 * branches did, what the models say, all of it counted apart for user and
 * kernel. Only the processor's own thread writes here; counters are atomic so
 * that the thread that meets a marker may read those of the others.
 */
#ifndef KBCOUNT_CORE_H
#define KBCOUNT_CORE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "blocks.h"
#include "flow.h"
#include "gshare.h"
#include "lru.h"

enum counter {
	COUNT_INSTRUCTIONS,
	COUNT_REP_ITERATIONS, /* of repeating string instructions */
	COUNT_STRINGS,        /* how often such an instruction begins */
	COUNT_STRING_BYTES,   /* what their iterations move, read or compare */
	COUNT_BRANCHES,       /* conditional ones */
	COUNT_TAKEN_BRANCHES, /* of all kinds */
	COUNT_MISPREDICTIONS, /* of conditional ones, by the model */
	COUNT_L1I_MISSES,     /* from here on by the model */
	COUNT_ITLB_MISSES,
	COUNT_L1D_MISSES, /* data only where core_access is told of it */
	COUNT_DTLB_MISSES,
	COUNTERS,
};

enum domain { DOMAIN_USER, DOMAIN_KERNEL, DOMAINS };

struct counts {
	uint64_t of[DOMAINS][COUNTERS];
};

struct core {
	const struct block *previous;
	struct gshare gshare;
	uint64_t l1i[L1_SETS * L1_WAYS];
	uint64_t l1d[L1_SETS * L1_WAYS];
	uint64_t itlb[TLB_SETS * TLB_WAYS];
	uint64_t dtlb[TLB_SETS * TLB_WAYS];
	struct flow *flow; /* NULL: nobody asked for branches */
	atomic_uint_fast64_t counters[DOMAINS][COUNTERS];
};

/* Counts that this block runs now. */
void core_run(struct core *core, const struct block *block);

/* Counts that an instruction of this block reads or writes these bytes. */
void core_access(struct core *core, const struct block *block, uint64_t address,
		 uint64_t size);

/* Forgets what ran last: what comes next does not follow it. */
void core_break(struct core *core);

/* Adds the core's counters to a sum. */
void core_sum(struct core *core, struct counts *sum);

#endif
