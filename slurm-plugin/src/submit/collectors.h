/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
/*
 * What a user writes after --kernel-profiling=: names of collectors, each of
 * which looks at a job in its own way. This file knows the names and nothing
 * else; whether a collector can work on a kernel is the node's business.
 */
#ifndef KERNEL_PROFILE_COLLECTORS_H
#define KERNEL_PROFILE_COLLECTORS_H

#include <stdbool.h>
#include <stddef.h>

/* Collectors, in the order of reports. */
enum collector {
	COLLECT_IO = 1 << 0,
	COLLECT_SYSCALLS = 1 << 1,
	COLLECT_CALLGRAPH = 1 << 2,
	COLLECT_NOISE = 1 << 3,
	COLLECT_PGO = 1 << 4,
	COLLECT_CALLCOUNTS = 1 << 5,
};

/* Those that cost little and say most. */
#define COLLECT_DEFAULT (COLLECT_IO | COLLECT_SYSCALLS | COLLECT_NOISE)
/* Those that can look at one job side by side. */
#define COLLECT_ALL (COLLECT_DEFAULT | COLLECT_CALLGRAPH | COLLECT_PGO)

/* Room for all names, commas and the final NUL. */
#define COLLECTORS_TEXT_SIZE 64

/*
 * Reads "io,syscalls", "default" or "all"; no text at all is the default. On
 * false *bad and *length say which name is none.
 */
bool collectors_parse(const char *text, unsigned int *set, const char **bad,
		      size_t *length);

/* Writes the names in order; the buffer has COLLECTORS_TEXT_SIZE bytes. */
void collectors_format(unsigned int set, char *text);

#endif
