/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
/*
 * The option --kernel-profile and what was said with it.
 *
 * One run of sbatch, salloc or srun may submit several components of a
 * heterogeneous job, each with a profile of its own, while the plugin is
 * loaded once. Slurm calls back for each use of the option and then, at the
 * end of each component, init_post_opt; Slurm never forgets an option between
 * components, so the plugin keeps its own account and clears it there.
 */
#ifndef KERNEL_PROFILE_OPTION_H
#define KERNEL_PROFILE_OPTION_H

#include <stdbool.h>

#include <slurm/spank.h>

#include "common/ref.h"

struct option_state {
	bool given; /* on the command line or in the script */
	struct ref ref;
	/* The ref's check waits for the component's other options. */
	bool unchecked;
	/* A user's default in the environment; it outlives components. */
	bool has_default;
	struct ref fallback;
};

extern struct spank_option kernel_profile_option;

/* What is known so far about the present component. */
const struct option_state *option_state(void);

/*
 * The program's own variable, as SBATCH_KERNEL_PROFILE for sbatch: 1 and its
 * ref, 0 without one, -1 for one that is no ref, which is logged.
 */
int option_from_variable(struct ref *ref);

/* Forgets what the component that just ended has said. */
void option_next_component(void);

/* As when the plugin was just loaded. */
void option_reset(void);

#endif
