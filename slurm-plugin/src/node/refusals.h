/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
/*
 * gate.refusals: what the gate refused on this node, beside node.state. Slurm
 * drains a node whose prolog fails, and its own words do not say that it was
 * the gate. The node's agent reads the file and tells the broker, which undoes
 * the drains that it explains.
 *
 * One line per refusal, oldest first, the last REFUSALS_MAX of them:
 *
 *	boot_id=ID time=SECONDS job=ID cause=TEXT
 */
#ifndef KERNEL_PROFILE_REFUSALS_H
#define KERNEL_PROFILE_REFUSALS_H

#include <stdint.h>
#include <time.h>

#define REFUSALS_FILE "gate.refusals"
#define REFUSALS_MAX 8
#define REFUSAL_CAUSE_MAX 200

struct refusal {
	const char *boot_id;
	time_t time;
	uint32_t job;
	const char *cause;
};

/*
 * Adds a refusal beside the file node_state; 0, or an errno. Only to a folder
 * that nobody but this process's user can write to.
 */
int refusals_add(const char *node_state, const struct refusal *refusal);

#endif
