/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
/*
 * The option --kernel-profiling and what was said with it. As with
 * --kernel-profile the plugin keeps its own account for each component of a
 * heterogeneous job; unlike it there is no default in the environment: a job
 * is looked at when its user says so, and not since he once did.
 */
#ifndef KERNEL_PROFILE_PROFILING_H
#define KERNEL_PROFILE_PROFILING_H

#include <stdbool.h>

#include <slurm/spank.h>

#include "common/ref.h"

extern struct spank_option kernel_profiling_option;

/* The collectors that the present component asks for; 0: none. */
unsigned int profiling_wanted(void);

/* Forgets what the component that just ended has said. */
void profiling_next_component(void);

/*
 * Makes of the ref for a kernel the ref for its instrumented twin, which the
 * collector pgo needs. Returns 0, or -1 after telling the user why not.
 */
int profiling_instrumented(struct ref *ref);

/*
 * Tells the user where the twin comes from that the catalog does not offer. NULL
 * is a job that named no profile.
 */
void profiling_say_how(const struct ref *ref);

/* Hands the collectors on to slurmctld, or takes back what was before. */
int profiling_export(spank_t sp, unsigned int collectors);

/* Closes the ways by which Slurm itself forwards the option. */
int profiling_close_other_ways(spank_t sp);

#endif
