#include "l1i.h"

#include <string.h>

static unsigned int touch(uint64_t *set, uint64_t tag)
{
	unsigned int way = 0;

	while (way < L1I_WAYS - 1 && set[way] != tag)
		way++;

	unsigned int missed = set[way] != tag;

	memmove(set + 1, set, way * sizeof(*set));
	set[0] = tag;
	return missed;
}

unsigned int l1i_fetch(struct l1i *cache, uint64_t start, uint64_t end)
{
	unsigned int missed = 0;

	if (end <= start)
		return 0;
	for (uint64_t line = start / L1I_LINE; line <= (end - 1) / L1I_LINE;
	     line++)
		missed += touch(cache->lines[line % L1I_SETS], line + 1);
	return missed;
}
