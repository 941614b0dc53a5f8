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
		regions_end(all, now);
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

void regions_end(struct regions *all, const struct counts *now)
{
	if (!all->open) {
		all->unbalanced++;
		return;
	}

	struct counts *counts = &all->list[all->length - 1].counts;

	/* Until here this held the counters at the beginning. */
	for (int d = 0; d < DOMAINS; d++) {
		for (int c = 0; c < COUNTERS; c++)
			counts->of[d][c] = now->of[d][c] - counts->of[d][c];
	}
	all->open = false;
}

void regions_free(struct regions *all)
{
	free(all->list);
	*all = (struct regions){ 0 };
}

static void write_domain(const uint64_t *counts, const char *name, FILE *to)
{
	static const char *const names[COUNTERS] = {
		[COUNT_INSTRUCTIONS] = "instructions",
		[COUNT_REP_ITERATIONS] = "rep_iterations",
		[COUNT_BRANCHES] = "branches",
		[COUNT_TAKEN_BRANCHES] = "taken_branches",
		[COUNT_MISPREDICTIONS] = "mispredictions",
		[COUNT_L1I_MISSES] = "l1i_misses",
	};

	fprintf(to, ", \"%s\": {", name);
	for (int c = 0; c < COUNTERS; c++)
		fprintf(to, "%s\"%s\": %" PRIu64, c ? ", " : "", names[c],
			counts[c]);
	fputc('}', to);
}

int regions_write(const struct regions *all, FILE *to)
{
	/* One that never ended has no counts. */
	size_t whole = all->length - (all->open ? 1 : 0);

	fprintf(to,
		"{\"format\": 1, \"unended\": %d, \"unbalanced\": %" PRIu64
		", \"lost\": %" PRIu64 ", \"regions\": [",
		all->open, all->unbalanced, all->lost);
	for (size_t i = 0; i < whole; i++) {
		const struct region *r = &all->list[i];

		fprintf(to, "%s\n{\"marker\": %" PRIu32, i ? "," : "",
			r->marker);
		write_domain(r->counts.of[DOMAIN_USER], "user", to);
		write_domain(r->counts.of[DOMAIN_KERNEL], "kernel", to);
		fputc('}', to);
	}
	fprintf(to, "]}\n");
	return ferror(to) ? -1 : 0;
}
