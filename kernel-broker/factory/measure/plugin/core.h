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
#include "l1i.h"

enum counter {
	COUNT_INSTRUCTIONS,
	COUNT_REP_ITERATIONS, /* of string instructions, after the first */
	COUNT_BRANCHES,       /* conditional ones */
	COUNT_TAKEN_BRANCHES, /* of all kinds */
	COUNT_MISPREDICTIONS, /* of conditional ones, by the model */
	COUNT_L1I_MISSES,     /* by the model */
	COUNTERS,
};

enum domain { DOMAIN_USER, DOMAIN_KERNEL, DOMAINS };

struct counts {
	uint64_t of[DOMAINS][COUNTERS];
};

struct core {
	const struct block *previous;
	struct gshare gshare;
	struct l1i l1i;
	struct flow *flow; /* NULL: nobody asked for branches */
	atomic_uint_fast64_t counters[DOMAINS][COUNTERS];
};

/* Counts that this block runs now. */
void core_run(struct core *core, const struct block *block);

/* Forgets what ran last: what comes next does not follow it. */
void core_break(struct core *core);

/* Adds the core's counters to a sum. */
void core_sum(struct core *core, struct counts *sum);

#endif
