/*
 * ipc-mix: LMbench's bandwidths, and its context switches by processes and
 * memory, each a region of its own. --size is how often a token is handed on;
 * blocks of 64 KiB are moved less often.
 */
#include "rows.h"

#define ENTRY(processes, kib)                                                 \
	{ "switch-" #processes "p-" #kib "k", row_switch_##processes##_##kib, \
	  (processes) < 8 ? 4UL : 20UL, processes },

static const struct entry table[] = {
	{ "bandwidth-pipe", row_bandwidth_pipe, 10, 0 },
	{ "bandwidth-unix", row_bandwidth_unix, 10, 0 },
	{ "bandwidth-tcp", row_bandwidth_tcp, 10, 0 },
	{ "bandwidth-file", row_bandwidth_file, 10, 0 },
	{ "bandwidth-mmap", row_bandwidth_mmap, 10, 0 },
	SWITCH_GRID(ENTRY)
};

int main(int argc, char **argv)
{
	struct run run;

	run_begin(&run, argc, argv);
	return rows_run(&run, table, sizeof(table) / sizeof(table[0]));
}
