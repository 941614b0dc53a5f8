/*
 * What ran between two markers, each time: a list of records, written as JSON
 * at the end.
 */
#ifndef KBCOUNT_REGIONS_H
#define KBCOUNT_REGIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "blocks.h"
#include "core.h"

struct region {
	uint32_t marker;
	struct counts counts;
	struct text text; /* of the kernel */
};

struct regions {
	struct region *list;
	size_t length;
	size_t room;
	bool open; /* the last one has begun and not ended */
	bool data; /* accesses to data were counted */
	/* Marks out of order, and records that found no memory: either makes
	   the file useless, which it says. */
	uint64_t unbalanced;
	uint64_t lost;
};

/* Begins a region; now are the counters of all processors. */
void regions_begin(struct regions *all, uint32_t marker,
		   const struct counts *now);
void regions_end(struct regions *all, const struct counts *now,
		 const struct text *text);
void regions_free(struct regions *all);

/* 0, or -1 with errno set. */
int regions_write(const struct regions *all, FILE *to);

#endif
