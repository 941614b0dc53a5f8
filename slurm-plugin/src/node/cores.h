/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
/*
 * The system cores of a kernel that has some (ADR 0033): slurmd and slurmstepd
 * run on them, and a task would inherit that.
 */
#ifndef KERNEL_PROFILE_CORES_H
#define KERNEL_PROFILE_CORES_H

#include <sched.h>
#include <stdbool.h>

#include "common/settings.h"

/*
 * Takes the system's CPUs from those of the calling task, or gives it all
 * others where none would be left. Without system cores it changes nothing; it
 * never fails, because a task is better in the wrong place than not run.
 */
void cores_place_task(const struct settings *settings);

/*
 * Reads the system's CPUs from a kernel's command line. False if it names
 * none, or not in the way that the agent writes them.
 */
bool cores_parse(const char *cmdline, cpu_set_t *system);

#endif
