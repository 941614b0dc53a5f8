#include "regions.h"

#include <inttypes.h>
#include <stdlib.h>

static struct region *append(struct regions *all)
{
	if (all->length == all->room) {
		size_t room = all->room ? all->room * 2 : 64;
		struct region *larger =
			realloc(all->list, room * sizeof(*larger));

		if (!larger)
			return NULL;
		all->list = larger;
		all->room = room;
	}
	return &all->list[all->length++];
}

void regions_begin(struct regions *all, uint32_t marker,
		   const struct counts *now)
{
	if (all->open) {
		all->unbalanced++;
		regions_end(all, now, &(struct text){ 0 });
	}

	struct region *region = append(all);

	if (!region) {
		all->lost++;
		return;
	}
	region->marker = marker;
	region->counts = *now;
	all->open = true;
}

void regions_end(struct regions *all, const struct counts *now,
		 const struct text *text)
{
	if (!all->open) {
		all->unbalanced++;
		return;
	}

	struct region *region = &all->list[all->length - 1];
	struct counts *counts = &region->counts;

	/* Until here this held the counters at the beginning. */
	for (int d = 0; d < DOMAINS; d++) {
		for (int c = 0; c < COUNTERS; c++)
			counts->of[d][c] = now->of[d][c] - counts->of[d][c];
	}
	region->text = *text;
	all->open = false;
}

void regions_free(struct regions *all)
{
	free(all->list);
	*all = (struct regions){ 0 };
}

static void write_domain(const uint64_t *counts, bool data, const char *name,
			 FILE *to)
{
	static const char *const names[COUNTERS] = {
		[COUNT_INSTRUCTIONS] = "instructions",
		[COUNT_REP_ITERATIONS] = "rep_iterations",
		[COUNT_STRINGS] = "strings",
		[COUNT_STRING_BYTES] = "string_bytes",
		[COUNT_BRANCHES] = "branches",
		[COUNT_TAKEN_BRANCHES] = "taken_branches",
		[COUNT_MISPREDICTIONS] = "mispredictions",
		[COUNT_L1I_MISSES] = "l1i_misses",
		[COUNT_ITLB_MISSES] = "itlb_misses",
		[COUNT_L1D_MISSES] = "l1d_misses",
		[COUNT_DTLB_MISSES] = "dtlb_misses",
	};
	/* What was not counted is left out, which is not none. */
	int n = data ? COUNTERS : COUNT_L1D_MISSES;

	fprintf(to, ", \"%s\": {", name);
	for (int c = 0; c < n; c++)
		fprintf(to, "%s\"%s\": %" PRIu64, c ? ", " : "", names[c],
			counts[c]);
	fputc('}', to);
}

int regions_write(const struct regions *all, FILE *to)
{
	/* One that never ended has no counts. */
	size_t whole = all->length - (all->open ? 1 : 0);

	fprintf(to,
		"{\"format\": 3, \"unended\": %d, \"unbalanced\": %" PRIu64
		", \"lost\": %" PRIu64 ", \"regions\": [",
		all->open, all->unbalanced, all->lost);
	for (size_t i = 0; i < whole; i++) {
		const struct region *r = &all->list[i];

		fprintf(to, "%s\n{\"marker\": %" PRIu32, i ? "," : "",
			r->marker);
		write_domain(r->counts.of[DOMAIN_USER], all->data, "user", to);
		write_domain(r->counts.of[DOMAIN_KERNEL], all->data, "kernel",
			     to);
		fprintf(to,
			", \"text_lines\": %" PRIu64
			", \"text_pages\": %" PRIu64 "}",
			r->text.lines, r->text.pages);
	}
	fprintf(to, "]}\n");
	return ferror(to) ? -1 : 0;
}
