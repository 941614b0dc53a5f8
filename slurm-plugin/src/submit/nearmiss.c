/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
#include "submit/nearmiss.h"

#include <string.h>

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

size_t nearmiss_distance(const char *a, const char *b)
{
	/* Three rows are enough: a swap looks two rows back. */
	size_t rows[3][REF_NAME_MAX + 1];
	size_t la = strnlen(a, REF_NAME_MAX);
	size_t lb = strnlen(b, REF_NAME_MAX);

	for (size_t j = 0; j <= lb; j++)
		rows[0][j] = j;
	for (size_t i = 1; i <= la; i++) {
		size_t *now = rows[i % 3];
		const size_t *last = rows[(i + 2) % 3];
		const size_t *before = rows[(i + 1) % 3];

		now[0] = i;
		for (size_t j = 1; j <= lb; j++) {
			size_t change = a[i - 1] != b[j - 1];

			now[j] = least(least(last[j], now[j - 1]) + 1,
				       last[j - 1] + change);
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] &&
			    a[i - 2] == b[j - 1])
				now[j] = least(now[j], before[j - 2] + 1);
		}
	}
	return rows[la % 3][lb];
}

/* 0 is nearest; SIZE_MAX means: not alike at all. */
static size_t unlikeness(const char *candidate, const char *name)
{
	size_t length = strlen(name);
	size_t distance = nearmiss_distance(candidate, name);
	/* One slip in a short name, two from four letters on, three at most. */
	size_t allowed = length < 4 ? 1 : least(1 + length / 4, 3);

	if (distance <= allowed)
		return distance;
	/* "mit" for "mitgcm", or "mitgcm-2024" for "mitgcm". */
	if (length >= 3 && strncmp(candidate, name, length) == 0)
		return allowed;
	if (strlen(candidate) >= 3 &&
	    strncmp(candidate, name, strlen(candidate)) == 0)
		return allowed;
	return SIZE_MAX;
}

size_t nearmiss_find(const struct snapshot *snapshot, const char *name,
		     const char *found[NEARMISS_MAX])
{
	size_t scores[NEARMISS_MAX];
	size_t count = 0;

	for (size_t i = 0; i < snapshot->count; i++) {
		const struct snapshot_entry *entry = &snapshot->entries[i];
		size_t score = unlikeness(entry->name, name);
		size_t at = count;

		if (score == SIZE_MAX || !entry->available)
			continue;
		while (at > 0 && scores[at - 1] > score)
			at--;
		if (at == NEARMISS_MAX)
			continue;
		if (count < NEARMISS_MAX)
			count++;
		for (size_t j = count - 1; j > at; j--) {
			scores[j] = scores[j - 1];
			found[j] = found[j - 1];
		}
		scores[at] = score;
		found[at] = entry->name;
	}
	return count;
}
