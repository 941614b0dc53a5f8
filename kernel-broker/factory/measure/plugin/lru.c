#include "lru.h"

#include <string.h>

const struct lru_shape lru_l1 = { LINE_SHIFT, L1_SETS, L1_WAYS };
const struct lru_shape lru_tlb = { PAGE_SHIFT, TLB_SETS, TLB_WAYS };

/* A set has numbers plus one, the most recently used first; 0 is empty. */
static unsigned int use(uint64_t *set, unsigned int ways, uint64_t tag)
{
	unsigned int way = 0;

	if (set[0] == tag)
		return 0;
	while (way < ways - 1 && set[way] != tag)
		way++;

	unsigned int missed = set[way] != tag;

	memmove(set + 1, set, way * sizeof(*set));
	set[0] = tag;
	return missed;
}

unsigned int lru_use(const struct lru_shape *shape, uint64_t *slots,
		     uint64_t start, uint64_t size)
{
	unsigned int missed = 0;

	if (size == 0)
		return 0;
	for (uint64_t n = start >> shape->shift;
	     n <= (start + size - 1) >> shape->shift; n++)
		missed += use(slots + (n & (shape->sets - 1)) * shape->ways,
			      shape->ways, n + 1);
	return missed;
}
