/* SPDX-License-Identifier: Apache-2.0 */
/* A run of random operations: its state, its choices, and what it looks at. */
#ifndef GATHER_RUN_H
#define GATHER_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>
#include <time.h>

#include "check.h"
#include "model.h"

#define LARGEST 12000
#define BLOCK 4096

struct run {
	const struct options *options;
	struct model model;
	int fds[MODEL_DESCRIPTORS];
	uint64_t random;
	unsigned int step;
	const char *doing;
	unsigned char data[LARGEST];
};

/* The step that found it repeats with the seed. */
#define WRONG(run, ...)                                                        \
	do {                                                                   \
		fprintf(stderr, "seed %llu, step %u, %s: ",                    \
			(unsigned long long)(run)->options->seed, (run)->step, \
			(run)->doing);                                         \
		fail(__VA_ARGS__);                                             \
	} while (0)

size_t below(struct run *run, size_t bound);
const char *name_of(struct run *run, unsigned int file);
size_t some_count(struct run *run);
void fill(struct run *run, size_t count);
int some_descriptor(struct run *run);
bool has_room(const struct opened *opened, size_t count);
int64_t now(clockid_t clock);
int64_t modified(struct run *run, int at);
void check_size(struct run *run, int at);
void check_position(struct run *run, int at);
void check_bytes(struct run *run, const struct content *content, size_t from,
		 const unsigned char *got, size_t count);
void check_content(struct run *run, unsigned int file);
void wrote(struct run *run, int at, ssize_t done, size_t count, int64_t before);

#endif
