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
row row_pipe, row_unix;
row row_bandwidth_pipe, row_bandwidth_unix, row_bandwidth_tcp,
	row_bandwidth_file, row_bandwidth_mmap;
row row_mmap, row_fault_file, row_fault_memory, row_fault_protected;
row row_create_0k, row_delete_0k, row_create_10k, row_delete_10k;

/* Context switches, by processes and KiB that each uses. */
#define SWITCH_GRID(one)                                                      \
	one(2, 0) one(2, 4) one(2, 8) one(4, 0) one(4, 4) one(4, 8) one(8, 0) \
		one(8, 4) one(8, 8) one(16, 0) one(16, 4) one(16, 8)          \
			one(24, 0) one(24, 4) one(24, 8)

#define SWITCH_ROW(processes, kib) row row_switch_##processes##_##kib;
SWITCH_GRID(SWITCH_ROW)

struct entry {
	const char *name;
	row *work;
	uint64_t share;    /* done once for so many of the cheapest */
	uint64_t multiple; /* how often is a multiple of this, if not 0 */
};

/* A new file in the run's folder, without a name. */
int rows_file(struct run *run);

/* Does the rows of a table, one region each; the exit code of main. */
int rows_run(struct run *run, const struct entry *table, unsigned int count);

#endif
