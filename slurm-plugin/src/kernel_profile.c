/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
/*
 * kernel_profile: the SPANK plugin that lets a Slurm job choose its kernel.
 *
 * This file is only the switchboard. Slurm loads the plugin into sbatch and
 * salloc (allocator), srun (local), slurmd, slurmstepd (remote) and into the
 * process that runs a prolog (job script), and calls the same functions in
 * several of them; each side has a folder of its own:
 *
 *	submit/	allocator and local: option.c and profiling.c take the
 *		options, check.c checks them, submit.c hands them on
 *	node/	prolog.c is the gate (job script); task.c sets the job's
 *		environment and is a backstop (remote); cores.c keeps tasks
 *		off the system's cores
 *	common/	what both sides share
 */
#include <slurm/spank.h>

#include "submit/option.h"
#include "submit/profiling.h"
#include "node/cores.h"
#include "node/prolog.h"
#include "common/settings.h"
#include "submit/submit.h"
#include "node/task.h"

SPANK_PLUGIN(kernel_profile, 1)

static int register_options(spank_t sp)
{
	struct spank_option *options[] = { &kernel_profile_option,
					   &kernel_profiling_option };

	for (size_t i = 0; i < sizeof(options) / sizeof(*options); i++) {
		spank_err_t rc = spank_option_register(sp, options[i]);

		if (rc != ESPANK_SUCCESS) {
			slurm_error("kernel_profile: --%s cannot be "
				    "registered: %s",
				    options[i]->name, spank_strerror(rc));
			return -1;
		}
	}
	return 0;
}

int slurm_spank_init(spank_t sp, int argc, char *argv[])
{
	struct settings settings;
	int rc = settings_parse(argc, argv, &settings);

	switch (spank_context()) {
	case S_CTX_LOCAL:
	case S_CTX_ALLOCATOR:
		submit_begin(&settings);
		return register_options(sp) ? -1 : rc;
	case S_CTX_SLURMD:
		/* The place to be strict: slurmd does not start. */
		return rc;
	case S_CTX_REMOTE:
		/* A failure here would drain the node: logged is enough. */
		return register_options(sp);
	case S_CTX_JOB_SCRIPT:
	case S_CTX_ERROR:
		break;
	}
	return 0;
}

int slurm_spank_init_post_opt(spank_t sp, int argc, char *argv[])
{
	(void)argc;
	(void)argv;
	switch (spank_context()) {
	case S_CTX_LOCAL:
	case S_CTX_ALLOCATOR:
		return submit_post_opt(sp);
	case S_CTX_REMOTE:
	case S_CTX_SLURMD:
	case S_CTX_JOB_SCRIPT:
	case S_CTX_ERROR:
		break;
	}
	return 0;
}

int slurm_spank_job_prolog(spank_t sp, int argc, char *argv[])
{
	struct settings settings;

	/*
	 * A misspelt argument is logged, and stops a slurmd that starts, but
	 * it must not drain the nodes of one that runs.
	 */
	(void)settings_parse(argc, argv, &settings);
	return prolog_gate(sp, &settings);
}

int slurm_spank_user_init(spank_t sp, int argc, char *argv[])
{
	struct settings settings;

	(void)settings_parse(argc, argv, &settings);
	return spank_context() == S_CTX_REMOTE ?
		       task_environment(sp, &settings) :
		       0;
}

int slurm_spank_task_init(spank_t sp, int argc, char *argv[])
{
	struct settings settings;

	(void)settings_parse(argc, argv, &settings);
	if (spank_context() != S_CTX_REMOTE)
		return 0;
	/* Slurm's task plugins have bound the task by now. */
	cores_place_task(&settings);
	return task_check(sp, &settings);
}
