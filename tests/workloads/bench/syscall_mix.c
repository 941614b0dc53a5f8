/*
 * syscall-mix: the rows of LMbench, each a region of its own. --size is how
 * often the cheapest ones are done; dear ones are done less often.
 */
#include <string.h>
#include <unistd.h>

#include "rows.h"

static const struct entry table[] = {
	{ "null-call", row_null, 1, 0 },
	{ "read", row_read, 1, 0 },
	{ "write", row_write, 1, 0 },
	{ "stat", row_stat, 1, 0 },
	{ "open-close", row_open, 2, 0 },
	{ "signal-install", row_sigaction, 1, 0 },
	{ "signal-handle", row_signal, 2, 0 },
	{ "select-64", row_select, 4, 0 },
	{ "fork-exit", row_fork, 50, 0 },
	{ "fork-exec", row_exec, 100, 0 },
	{ "fork-shell", row_shell, 200, 0 },
	{ "pipe", row_pipe, 4, 0 },
	{ "unix", row_unix, 4, 0 },
	{ "switch-2p-0k", row_switch_2_0, 4, 2 },
	{ "switch-8p-4k", row_switch_8_4, 20, 8 },
	{ "switch-24p-8k", row_switch_24_8, 50, 24 },
	{ "mmap", row_mmap, 10, 0 },
	{ "fault-file", row_fault_file, 4, 0 },
	{ "fault-memory", row_fault_memory, 4, 0 },
	{ "fault-protected", row_fault_protected, 4, 0 },
	{ "create-0k", row_create_0k, 10, 0 },
	{ "delete-0k", row_delete_0k, 10, 0 },
	{ "create-10k", row_create_10k, 20, 0 },
	{ "delete-10k", row_delete_10k, 20, 0 },
};

int main(int argc, char **argv)
{
	struct run run;

	/* What row_exec starts. */
	if (argc == 2 && strcmp(argv[1], "--nothing") == 0)
		_exit(42);
	run_begin(&run, argc, argv);
	return rows_run(&run, table, sizeof(table) / sizeof(table[0]));
}
