/* The rows of syscall-mix: each does one kind of work n times. */
#ifndef BENCH_ROWS_H
#define BENCH_ROWS_H

#include "run.h"

/*
 * A row prepares, meets its marker, works, ends the region, cleans up, and
 * ends the program when anything was not as it has to be.
 */
typedef void row(struct run *run, unsigned int marker, uint64_t n);

/* Ends the program with the last error, unless something held. */
#define NEED(held, what)                \
	do {                            \
		if (!(held))            \
			run_fail(what); \
	} while (0)

row row_null, row_read, row_write, row_stat, row_open, row_sigaction,
	row_signal, row_select;
row row_fork, row_exec, row_shell;
row row_pipe, row_unix, row_switch_2, row_switch_8, row_switch_24;
row row_mmap, row_fault_file, row_fault_memory, row_fault_protected;
row row_create_0k, row_delete_0k, row_create_10k, row_delete_10k;

#endif
