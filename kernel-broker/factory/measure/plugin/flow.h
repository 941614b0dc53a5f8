/*
 * The kernel's flow of control, as a processor with an endless branch record
 * would write it down: each taken branch, and each range of instructions that
 * ran between two of them, with how often. What goes through a thunk, as indirect
 * calls and returns do under mitigations, is one branch from the caller to where
 * it led: a compiler makes a direct call of a call whose targets it knows.
 */
#ifndef KBCOUNT_FLOW_H
#define KBCOUNT_FLOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "blocks.h"

/* Two addresses, and how often they were seen together. */
struct pair {
	uint64_t from;
	uint64_t to;
	uint64_t count;
};

struct pairs {
	struct pair *slots; /* one whose count is 0 is free */
	size_t size;        /* a power of two, or 0 */
	size_t used;
};

struct flow {
	uint64_t begin; /* of the open range, 0 without one */
	uint64_t site;  /* of the branch into the thunk that runs, 0 for none */
	uint64_t thunks_begin, thunks_end; /* the kernel's thunks; 0: none */
	bool lost; /* memory was out once: the record is not whole */
	struct pairs ranges;
	struct pairs branches;
};

/* Notes that block runs behind previous, or behind nothing that counts. */
void flow_run(struct flow *flow, const struct block *previous,
	      const struct block *block);

/* Closes the range that ends with this block. */
void flow_break(struct flow *flow, const struct block *last);

/*
 * Writes what all processors saw: the number of ranges, "start-last:count" in
 * hex for each, where last is the address of its last instruction, then the
 * number of branches, and "from->to:count" for each, in order. 0, or -1 with
 * errno set. llvm-profgen takes this as --unsymbolized-profile.
 */
int flow_write(const struct flow *const *flows, size_t n, FILE *to);

void flow_free(struct flow *flow);

#endif
