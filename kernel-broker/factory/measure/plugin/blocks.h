/*
 * The translated blocks that were seen, each once: QEMU translates the same
 * code again and again, and a record for each time would grow without end.
 */
#ifndef KBCOUNT_BLOCKS_H
#define KBCOUNT_BLOCKS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "insn.h"

struct block {
	uint64_t start;
	uint64_t end;
	uint64_t last;   /* address of the last instruction */
	uint64_t target; /* of a branch at the end that names it, else 0 */
	uint32_t instructions;
	uint8_t kind;  /* enum insn_kind of the last instruction */
	uint8_t width; /* and its bytes each time, as in struct insn */
	bool kernel;
	atomic_bool ran;
	atomic_uint_fast64_t runs; /* in regions */
	/* The number of the region that it ran in last, 0 for none. */
	atomic_uint_fast64_t region;
};

struct blocks {
	struct block **slots;
	size_t size; /* a power of two, or 0 */
	size_t used;
};

/* The kernel's half of the address space. */
#define KERNEL_FIRST UINT64_C(0xffff800000000000)

/*
 * The record of a block like this one, a new one if there is none; NULL when
 * memory is out. Records stay where they are until blocks_free.
 */
struct block *blocks_get(struct blocks *all, const struct block *like);

/*
 * Parts a block in two where its last instruction may not belong to it, and
 * says whether it did. QEMU 7.2 takes an instruction that goes on in the next
 * page out of a block that does not begin with it, once it has met that page;
 * the plugin's list of the block keeps it, with the bytes that were read.
 * Nothing but its length tells it from a whole one, so what begins too near to
 * the page's end becomes a block of its own, to be counted when it runs. The
 * instruction before it begins at that address.
 */
bool blocks_part(struct block *body, uint64_t before, struct block *tail);

void blocks_free(struct blocks *all);

/* Memory that the code of the kernel's blocks lies in. */
struct text {
	uint64_t lines; /* of the caches, 64 bytes */
	uint64_t pages; /* of 4 KiB */
};

/*
 * Counts the memory of what ran in the region of this number, which must be the
 * last one that began: a block knows one only. 0, or -1 when memory is out.
 */
int blocks_text(const struct blocks *all, uint64_t region, struct text *text);

/* Which blocks of the kernel, and what of them, blocks_write writes. */
enum blocks_list {
	BLOCKS_RAN,    /* "start end" in hex, of all that ran */
	BLOCKS_REGION, /* the same, of what ran in regions */
	BLOCKS_RUNS,   /* "start instructions runs", of what ran in regions */
};

/* A line for each block, in order, each once. 0, or -1 with errno set. */
int blocks_write(const struct blocks *all, enum blocks_list list, FILE *to);

#endif
