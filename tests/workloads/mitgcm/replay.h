/*
 * The model's I/O against real files: every call is counted as it is issued,
 * and what was handed to the kernel is remembered as digests, so that it can
 * be compared with what the files hold at the end.
 */
#ifndef REPLAY_H
#define REPLAY_H

#include <stdbool.h>
#include <stdint.h>

#include "layout.h"
#include "ocean.h"

enum { PATH_BYTES = 4096 };

struct written {
	uint64_t digest;
	uint64_t size;
};

struct replay {
	const char *dir;
	uint64_t seed;
	struct layout layout;
	struct totals issued[PATTERNS];
	int log_fd;
	unsigned int log_lines;
	struct written log;
	struct written *data; /* one for each field and tile */
	struct written *meta;
};

/* All of these print what is wrong and return false. */
bool replay_init(struct replay *replay, const char *dir, uint64_t seed,
		 unsigned int scale);
void replay_free(struct replay *replay);

/* Make the input files; not part of the replay, and not counted. */
bool replay_prepare(struct replay *replay);

/* Read all input as the model does when it starts. */
bool replay_input(struct replay *replay);

/* Write one field, and the log lines that come before it. */
bool replay_output(struct replay *replay, const struct ocean *ocean,
		   unsigned int field);

/* Close the log: the model's end. */
bool replay_finish(struct replay *replay);

/* Compare files and counts with what they have to be. */
bool replay_verify(struct replay *replay);

/* Remove every file that was made. */
bool replay_remove(const struct replay *replay);

#endif
