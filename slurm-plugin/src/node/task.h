/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
/*
 * The remote context, in slurmstepd on the node: a job's environment says
 * which kernel it is on, and each task is checked once more before it starts.
 */
#ifndef KERNEL_PROFILE_TASK_H
#define KERNEL_PROFILE_TASK_H

#include <slurm/spank.h>

#include "common/settings.h"

/*
 * Sets KERNEL_BROKER_*. It never fails: a failure in user_init would drain
 * the node and let the job end as if it had succeeded.
 */
int task_environment(spank_t sp, const struct settings *settings);

/* The backstop: fails the task when the node runs a kernel not its own. */
int task_check(spank_t sp, const struct settings *settings);

#endif
