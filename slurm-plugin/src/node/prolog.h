/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
/*
 * The job script context: the gate's place in Slurm. slurmd calls it on each
 * node before a job begins there; a failure drains the node and requeues the
 * job.
 */
#ifndef KERNEL_PROFILE_PROLOG_H
#define KERNEL_PROFILE_PROLOG_H

#include <slurm/spank.h>

#include "common/settings.h"

int prolog_gate(spank_t sp, const struct settings *settings);

#endif
