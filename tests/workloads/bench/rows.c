#include <stdlib.h>
#include <unistd.h>

#include "rows.h"

int rows_file(struct run *run)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/mix-XXXXXX", run->dir);

	int fd = mkstemp(path);

	NEED(fd >= 0 && !unlink(path), path);
	return fd;
}

int rows_run(struct run *run, const struct entry *table, unsigned int count)
{
	for (unsigned int i = 0; i < count; i++) {
		uint64_t n = run->size / table[i].share;
		unsigned int marker = run->first + i;

		/* A few at least: the first one is not like the rest. */
		n = n < 4 ? 4 : n;
		if (table[i].multiple)
			n += table[i].multiple - 1 -
			     (n - 1) % table[i].multiple;
		table[i].work(run, marker, n);
		run_region(run, marker, table[i].name, n);
	}
	return run_end(run);
}
