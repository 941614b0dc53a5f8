/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
/*
 * node.state: what the node's agent says about the kernel that runs, as
 * key=value lines. Keys that are not known here are ignored; a known key that
 * is wrong, twice or missing makes the whole file worthless, because a gate
 * must not guess.
 */
#ifndef KERNEL_PROFILE_NODESTATE_H
#define KERNEL_PROFILE_NODESTATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/ref.h"

#define NODESTATE_LIMIT ((size_t)16384)
#define BOOT_ID_LENGTH 36
#define BUILD_ID_MAX 128
#define RELEASE_MAX 64
#define NODESTATE_JOBS_MAX 1024

struct nodestate {
	char boot_id[BOOT_ID_LENGTH + 1];
	char build_id[BUILD_ID_MAX + 1];
	char release[RELEASE_MAX + 1];
	struct ref kernel; /* profile and version */
	char jobs[NODESTATE_JOBS_MAX + 1];
	/* Jobs that hold the node and whose kernel it no longer runs. */
	char lost[NODESTATE_JOBS_MAX + 1];
	bool attested;
};

/* 0, or an errno; EBADMSG when the file is not a node.state. */
int nodestate_load(const char *path, struct nodestate *state);
int nodestate_parse(const char *text, size_t size, struct nodestate *state);

/* Whether the node was prepared for this job. */
bool nodestate_has_job(const struct nodestate *state, uint32_t job);

/* Whether the node has lost this job's kernel while the job was on it. */
bool nodestate_lost_job(const struct nodestate *state, uint32_t job);

#endif
