/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
/*
 * The names that this plugin shares with Slurm, with the broker's hooks and
 * with users' jobs. Changing one breaks somebody else.
 */
#ifndef KERNEL_PROFILE_NAMES_H
#define KERNEL_PROFILE_NAMES_H

/* The option, and the job control variable that carries its value. */
#define OPTION_NAME "kernel-profile"
#define CONTROL_ENV "KERNEL_PROFILE"

/* What stands for the option in the environment of each program. */
#define SBATCH_ENV "SBATCH_KERNEL_PROFILE"
#define SALLOC_ENV "SALLOC_KERNEL_PROFILE"
#define SRUN_ENV "SLURM_KERNEL_PROFILE"

/* The same for the collectors of a profiling run. */
#define PROFILING_NAME "kernel-profiling"
#define PROFILING_CONTROL_ENV "KERNEL_PROFILING"

/* Makes of a profile's name that of its instrumented kernel. */
#define INSTRUMENTED "-instrumented"

/* slurmd and slurmctld prefix control variables for prologs... */
#define PROLOG_CONTROL_ENV "SPANK_" CONTROL_ENV
/* ...and sbatch and salloc prefix them for the job's own environment. */
#define JOB_CONTROL_ENV "SLURM_SPANK_" CONTROL_ENV
#define JOB_PROFILING_ENV "SLURM_SPANK_" PROFILING_CONTROL_ENV

/* Where Slurm itself passes on the option of a plugin of this name. */
#define SLURM_OPTION_ENV "_SLURM_SPANK_OPTION_kernel_profile_kernel_profile"
#define JOB_OPTION_ENV "SLURM_SPANK_" SLURM_OPTION_ENV
#define SLURM_PROFILING_OPTION_ENV \
	"_SLURM_SPANK_OPTION_kernel_profile_kernel_profiling"
#define JOB_PROFILING_OPTION_ENV "SLURM_SPANK_" SLURM_PROFILING_OPTION_ENV

/* What a step's own --kernel-profile asks of the nodes it starts on. */
#define STEP_ENV "SLURM_KERNEL_PROFILE_STEP"
/* What a step knows of its job's kernel, as JOB/NAME[@VERSION]. */
#define STEP_JOB_ENV "SLURM_KERNEL_PROFILE_JOB"

/* What a job finds in its environment. */
#define JOB_PROFILE_ENV "KERNEL_BROKER_PROFILE"
#define JOB_VERSION_ENV "KERNEL_BROKER_VERSION"
#define JOB_RELEASE_ENV "KERNEL_BROKER_RELEASE"
#define JOB_BUILD_ID_ENV "KERNEL_BROKER_BUILD_ID"

#endif
