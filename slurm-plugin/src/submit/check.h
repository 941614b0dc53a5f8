/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
/*
 * Checks a requested kernel where a job or a step is submitted: the catalog
 * decides for a new job, the profile of its job for a step.
 */
#ifndef KERNEL_PROFILE_CHECK_H
#define KERNEL_PROFILE_CHECK_H

#include <stdbool.h>

#include "common/ref.h"
#include "common/settings.h"

/* Called once, before any check. */
void check_begin(const struct settings *settings);

/* Returns 0, or -1 after telling the user why the kernel is refused. */
int check_ref(const struct ref *ref);

/* The same for a kernel on which a new job is to be profiled. */
int check_profiled(const struct ref *ref);

/*
 * Whether the check has to wait for the component's other options: the
 * collector pgo boots another kernel, and the profile may have none of its own
 * yet.
 */
bool check_waits(const struct ref *ref);

/* Whether an allocation surrounds the command. */
bool check_inside_job(void);

/*
 * Whether that allocation is heterogeneous. Its environment tells the profile
 * of its first component only, so the nodes check its steps.
 */
bool check_inside_het_job(void);

/* srun in an allocation starts a step; sbatch and salloc never do. */
bool check_is_step(void);

/* The profile of the surrounding job, as far as the environment knows. */
void check_job_ref(struct ref *ref);

#endif
