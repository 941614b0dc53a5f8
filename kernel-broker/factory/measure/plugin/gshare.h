/*
 * A gshare predictor: 2-bit counters, found by the branch's address mixed with
 * the last outcomes. A textbook model, not any real processor.
 */
#ifndef KBCOUNT_GSHARE_H
#define KBCOUNT_GSHARE_H

#include <stdbool.h>
#include <stdint.h>

#define GSHARE_BITS 14

struct gshare {
	uint32_t history;
	uint8_t counters[1u << GSHARE_BITS]; /* 0, 1: not taken; 2, 3: taken */
};

/* Learns one outcome and says whether it was predicted. */
bool gshare_right(struct gshare *g, uint64_t address, bool taken);

#endif
