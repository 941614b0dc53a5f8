#include "gshare.h"

bool gshare_right(struct gshare *g, uint64_t address, bool taken)
{
	const uint32_t mask = (1u << GSHARE_BITS) - 1;
	uint8_t *counter =
		&g->counters[((uint32_t)address ^ g->history) & mask];
	bool predicted = *counter >= 2;

	if (taken && *counter < 3)
		(*counter)++;
	else if (!taken && *counter > 0)
		(*counter)--;
	g->history = (g->history << 1 | taken) & mask;
	return predicted == taken;
}
