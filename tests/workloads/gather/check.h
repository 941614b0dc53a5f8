/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GATHER_CHECK_H
#define GATHER_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct options {
	const char *dir;
	/* The ext4 below dir, if that is an overlay. */
	const char *disk;
	uint64_t seed;
	unsigned int steps;
	/* The model forgets a byte: the check has to find it. */
	bool wrong;
	/* Stay, with the file open, until a signal. */
	bool hold;
};

/* Ends the program with a message and 1. */
_Noreturn void fail(const char *format, ...)
	__attribute__((format(printf, 1, 2)));

/* The path of a file in the folder; the text lasts until the next call. */
const char *path_in(const struct options *options, const char *name);

/* Random operations on files and on a model of them. */
void run_random(const struct options *options);

/* Several writers, through one descriptor and through their own. */
void run_writers(const struct options *options);
/* What a process wrote before kill -9 is in the file. */
void run_killed(const struct options *options);
/* RLIMIT_FSIZE is the writer's, to the byte, and never a reader's. */
void run_limit(const struct options *options);
/* On a file system that gets full: what write took is in the file. */
void run_full(const struct options *options);
/* Records, the first of them synced; verify finds at least those. */
void run_records(const struct options *options);
void run_verify(const struct options *options);
/* Shuts ext4 down under bytes that wait, and prints what the calls say. */
void run_shutdown(const struct options *options);
/* A source page that is not there until sync and a reader have returned. */
void run_fault(const struct options *options);
/* Loses the page of a tmpfs under bytes that wait, and prints what calls say. */
void run_poison(const struct options *options);
/* Ranges of blocks that go or come before bytes that wait. */
void run_ranges(const struct options *options);
/* Many direct writes at a time, beside short ones to the same file. */
void run_direct(const struct options *options);
/* Prints the nanoseconds of 40,000 writes of 8 bytes. */
void run_clock(const struct options *options);

#endif
