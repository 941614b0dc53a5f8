/* The predictor and the cache against sequences whose outcome is known. */
#include <stdlib.h>

#include "gshare.h"
#include "l1i.h"
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
	struct l1i *c = calloc(1, sizeof(*c));

	is_int(l1i_fetch(c, 0x1000, 0x1001), 1, "first fetch misses");
	is_int(l1i_fetch(c, 0x103f, 0x1040), 0, "the same line hits");
	is_int(l1i_fetch(c, 0x103f, 0x1041), 1, "one byte over: one more line");
	is_int(l1i_fetch(c, 0x1000, 0x1000), 0, "nothing is no fetch");
	is_int(l1i_fetch(c, 0, 64), 1, "line 0 is not taken for an empty way");
	is_int(l1i_fetch(c, 0, 64), 0, "and is kept");

	memset(c, 0, sizeof(*c));
	is_int(l1i_fetch(c, 0, 32768), 512, "32 KiB are 512 lines");
	is_int(l1i_fetch(c, 0, 32768), 0, "and all of them fit");
	is_int(l1i_fetch(c, 32768, 32768 + 64), 1, "one line more misses");
	is_int(l1i_fetch(c, 4096, 4096 + 64), 0, "a later way stayed");
	is_int(l1i_fetch(c, 0, 64), 1, "the least recently used one went");
	free(c);
}

int main(void)
{
	learns();
	caches();
	return tap_end();
}
