/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
/*
 * The submit side: sbatch and salloc (allocator context) and srun (local
 * context). It refuses what cannot work, and hands on what was asked for: to
 * slurmctld and the prologs as the job control variable KERNEL_PROFILE, which
 * is the only channel by which a profile reaches a job, and as
 * KERNEL_PROFILING for the collectors.
 */
#ifndef KERNEL_PROFILE_SUBMIT_H
#define KERNEL_PROFILE_SUBMIT_H

#include <slurm/spank.h>

#include "common/settings.h"

/* Called once, from slurm_spank_init. */
void submit_begin(const struct settings *settings);

/* The end of one component's options: exports its profile and collectors. */
int submit_post_opt(spank_t sp);

#endif
