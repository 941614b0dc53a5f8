/*
 * A model of a cache or of a translation buffer: the least recently used way of
 * a set goes. It knows virtual addresses only, of one address space.
 */
#ifndef KBCOUNT_LRU_H
#define KBCOUNT_LRU_H

#include <stdint.h>

struct lru_shape {
	unsigned int shift; /* log2 of the bytes of a line or page */
	unsigned int sets;  /* a power of two */
	unsigned int ways;
};

#define LINE_SHIFT 6
#define PAGE_SHIFT 12

/*
 * As one thread of Intel's Sandy Bridge has them: both first-level caches have
 * 32 KiB, and both translation buffers 64 entries for pages of 4 KiB.
 */
#define L1_SETS 64
#define L1_WAYS 8
#define TLB_SETS 16
#define TLB_WAYS 4

extern const struct lru_shape lru_l1, lru_tlb;

/*
 * Uses so many bytes, and says how many lines or pages missed. The slots are sets
 * times ways, all 0 at first.
 */
unsigned int lru_use(const struct lru_shape *shape, uint64_t *slots,
		     uint64_t start, uint64_t size);

#endif
