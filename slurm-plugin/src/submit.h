/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
/*
 * The submit side: sbatch and salloc (allocator context) and srun (local
 * context). It refuses what cannot work, and hands on what was asked for: to
 * slurmctld and the prologs as the job control variable KERNEL_PROFILE, which
 * is the only channel by which a profile reaches a job. Collectors go the same way, as KERNEL_PROFILING.
 */
#ifndef KERNEL_PROFILE_SUBMIT_H
#define KERNEL_PROFILE_SUBMIT_H

#include <stdbool.h>

#include <slurm/spank.h>

#include "settings.h"
#include "wish.h"

/* Called once, from slurm_spank_init. */
void submit_begin(const struct settings *settings);

/*
 * May the user have that? For a new job the catalog decides, for a step the
 * profile of its job. Returns 0, or -1 after telling the user why not.
 */
int submit_check(const struct wish *wish);

/*
 * Whether that hangs on options that may yet come: with the collector pgo the
 * job boots another kernel, and the profile may have none of its own yet.
 */
bool submit_depends(const struct wish *wish);

/* srun in an allocation starts a step; sbatch and salloc never do. */
bool submit_is_step(void);

/* The end of one component's options: exports its profile and collectors. */
int submit_post_opt(spank_t sp);

#endif
