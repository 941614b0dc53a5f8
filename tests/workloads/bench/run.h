/*
 * What every workload here shares: the options that the bench sets, numbers
 * that look random and are not, regions, and giving up.
 */
#ifndef BENCH_RUN_H
#define BENCH_RUN_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define RUN_NAME 64

struct run {
	const char *program;
	uint64_t seed;      /* of all that is random */
	uint64_t size;      /* how much there is to do */
	const char *dir;    /* where files go */
	const char *prefix; /* of the regions' names */
	unsigned int first; /* the first region's number */
	unsigned int processes;
	FILE *regions; /* NUMBER NAME OPERATIONS of each region, or NULL */
};

/* Reads the options; ends the program with 2 if they are wrong. */
void run_begin(struct run *run, int argc, char **argv);

/* Says what a region was; ends the program if that cannot be written. */
void run_region(struct run *run, unsigned int number, const char *name,
		uint64_t operations);

/* Closes the list of regions; the exit code of main. */
int run_end(struct run *run);

/* Ends the program with 1 and a message; with errno's text for run_fail. */
__attribute__((noreturn, format(printf, 1, 2))) void run_wrong(
	const char *format, ...);
__attribute__((noreturn)) void run_fail(const char *what);

/* The next number of a series that the state begins. */
uint64_t run_random(uint64_t *state);

/* Fills memory with the series of that seed, and finds out if it still is. */
void run_fill(void *memory, size_t size, uint64_t seed);
void run_compare(const char *what, const void *memory, size_t size,
		 uint64_t seed);

#endif
