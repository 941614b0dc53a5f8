/*
 * A model of a first-level instruction cache: 32 KiB, 8 ways, lines of 64
 * bytes, the least recently used way goes. It knows virtual addresses only.
 */
#ifndef KBCOUNT_L1I_H
#define KBCOUNT_L1I_H

#include <stdint.h>

#define L1I_LINE 64
#define L1I_WAYS 8
#define L1I_SETS 64

struct l1i {
	/* Line numbers plus one, the most recently used first; 0 is empty. */
	uint64_t lines[L1I_SETS][L1I_WAYS];
};

/* Fetches the bytes from start up to end, and says how many lines missed. */
unsigned int l1i_fetch(struct l1i *cache, uint64_t start, uint64_t end);

#endif
