/* The predictor, the caches and translation buffers against sequences whose outcome is known. */
#include <stdlib.h>
#include <string.h>

#include "gshare.h"
#include "lru.h"
#include "tap.h"

static void learns(void)
{
	struct gshare *g = calloc(1, sizeof(*g));
	int wrong = 0;

	for (int i = 0; i < 1000; i++)
		wrong += !gshare_right(g, 0x1000, true);
	/* Each new history meets an untaught counter, until it is all taken. */
	is_int(wrong <= 2 * (GSHARE_BITS + 1), 1,
	       "a branch always taken is learnt");
	ok(wrong > 0, "and was not known before");

	wrong = 0;
	for (int i = 0; i < 1000; i++)
		wrong += !gshare_right(g, 0x2000, i % 2);
	ok(wrong < 100, "an alternating branch is learnt by its history");

	wrong = 0;
	uint32_t chance = 1;
	for (int i = 0; i < 10000; i++) {
		chance = chance * 1664525 + 1013904223;
		wrong += !gshare_right(g, 0x3000, chance >> 31);
	}
	ok(wrong > 3500 && wrong < 6500, "chance is not learnt (%d of 10000)",
	   wrong);
	free(g);
}

static void caches(void)
{
	static uint64_t l1[L1_SETS * L1_WAYS];

	is_int(lru_use(&lru_l1, l1, 0x1000, 1), 1, "first use misses");
	is_int(lru_use(&lru_l1, l1, 0x103f, 1), 0, "the same line hits");
	is_int(lru_use(&lru_l1, l1, 0x103f, 2), 1,
	       "one byte over: one more line");
	is_int(lru_use(&lru_l1, l1, 0x2000, 0), 0, "nothing is no use");
	is_int(lru_use(&lru_l1, l1, 0, 64), 1,
	       "line 0 is not taken for an empty way");
	is_int(lru_use(&lru_l1, l1, 0, 64), 0, "and is kept");
	is_int(lru_use(&lru_l1, l1, UINT64_MAX - 7, 8), 1,
	       "the last bytes of the address space");

	memset(l1, 0, sizeof(l1));
	is_int(lru_use(&lru_l1, l1, 0, 32768), 512, "32 KiB are 512 lines");
	is_int(lru_use(&lru_l1, l1, 0, 32768), 0, "and all of them fit");
	is_int(lru_use(&lru_l1, l1, 32768, 64), 1, "one line more misses");
	is_int(lru_use(&lru_l1, l1, 4096, 64), 0, "a later way stayed");
	is_int(lru_use(&lru_l1, l1, 0, 64), 1,
	       "the least recently used one went");
}

static void translations(void)
{
	static uint64_t tlb[TLB_SETS * TLB_WAYS];
	const uint64_t page = 4096, around = TLB_SETS * page;

	is_int(lru_use(&lru_tlb, tlb, 0, 64 * page), 64, "64 pages");
	is_int(lru_use(&lru_tlb, tlb, 0, 64 * page), 0, "all of them fit");
	is_int(lru_use(&lru_tlb, tlb, page - 4, 8), 0,
	       "an access to two pages that are there");
	is_int(lru_use(&lru_tlb, tlb, 64 * page - 4, 8), 1,
	       "an access to two pages, one of them new");

	memset(tlb, 0, sizeof(tlb));
	for (uint64_t i = 0; i < 5; i++)
		is_int(lru_use(&lru_tlb, tlb, i * around, 8), 1,
		       "page %d of a set", (int)i + 1);
	is_int(lru_use(&lru_tlb, tlb, 4 * around, 8), 0, "the fifth is there");
	is_int(lru_use(&lru_tlb, tlb, 1 * around, 8), 0,
	       "and so is the second");
	is_int(lru_use(&lru_tlb, tlb, 0, 8), 1, "the first had to go");
	is_int(lru_use(&lru_tlb, tlb, 2 * around, 8), 1,
	       "for which the third went");
}

int main(void)
{
	learns();
	caches();
	translations();
	return tap_end();
}
