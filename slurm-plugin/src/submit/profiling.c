/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
#include "submit/profiling.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/names.h"
#include "submit/check.h"
#include "submit/collectors.h"

static unsigned int wanted;

static int take(unsigned int set)
{
	char first[COLLECTORS_TEXT_SIZE], second[COLLECTORS_TEXT_SIZE];

	if (wanted && wanted != set) {
		collectors_format(wanted, first);
		collectors_format(set, second);
		slurm_error("--" PROFILING_NAME " asks for %s and for %s; "
			    "write all collectors in one list",
			    first, second);
		return -1;
	}
	wanted = set;
	return 0;
}

static int callback(int val, const char *value, int remote)
{
	const char *bad = NULL;
	unsigned int set;
	size_t length = 0;

	(void)val;
	/* A node is told by its agent; and a past job's request is past. */
	if (remote || (value && value == getenv(JOB_PROFILING_OPTION_ENV)))
		return 0;
	if (!strcmp(program_invocation_short_name, "scrontab")) {
		slurm_error("--" PROFILING_NAME " has no effect in a crontab "
			    "of Slurm's: have the entry run 'sbatch "
			    "--" PROFILING_NAME "=...' instead");
		return -1;
	}
	/* An empty list is a script's empty variable, and no request. */
	if (value && !*value) {
		slurm_error(
			"--" PROFILING_NAME "=: a list of collectors is "
			"missing; there are io, syscalls, callgraph, noise, "
			"pgo and callcounts");
		return -1;
	}
	if (!collectors_parse(value, &set, &bad, &length)) {
		slurm_error("--" PROFILING_NAME "=%.80s: there is no collector "
			    "\"%.*s\"; there are io, syscalls, callgraph, "
			    "noise, pgo and callcounts",
			    value, (int)(length < 40 ? length : 40), bad);
		return -1;
	}
	if (check_is_step()) {
		slurm_error("--" PROFILING_NAME " is for a whole job, and job "
			    "%s has begun; submit a job with it",
			    getenv("SLURM_JOB_ID"));
		return -1;
	}
	return take(set);
}

struct spank_option kernel_profiling_option = {
	.name = (char *)PROFILING_NAME,
	.arginfo = (char *)"COLLECTORS",
	.usage = (char *)"look at what the kernel costs the job: io, "
			 "syscalls, callgraph, noise, pgo, callcounts "
			 "('kernelctl run report' shows it; without a list "
			 "io, syscalls and noise)",
	.has_arg = 2,
	.val = 1,
	.cb = callback,
};

unsigned int profiling_wanted(void)
{
	return wanted;
}

void profiling_next_component(void)
{
	wanted = 0;
}

int profiling_instrumented(struct ref *ref)
{
	char asked[REF_TEXT_SIZE];

	ref_format(ref, asked);
	if (ref->version) {
		slurm_error("--" PROFILING_NAME "=pgo boots the instrumented "
			    "kernel of a profile, which has versions of its "
			    "own; write --" OPTION_NAME "=%s instead of %s",
			    ref->name, asked);
		return -1;
	}
	if (!ref_instrumented(ref)) {
		slurm_error("--" PROFILING_NAME "=pgo: the name %s is too long "
			    "to have an instrumented kernel",
			    asked);
		return -1;
	}
	return 0;
}

void profiling_say_how(const struct ref *ref)
{
	if (!ref || ref_is_stock(ref))
		slurm_error("--" PROFILING_NAME "=pgo boots the instrumented "
			    "kernel of a profile; name one that has it by "
			    "--" OPTION_NAME);
	else
		slurm_error("--" PROFILING_NAME "=pgo boots the instrumented "
			    "kernel of %s, which an administrator makes by "
			    "'kernelctl kernel build %s --instrumented'",
			    ref->name, ref->name);
}

int profiling_export(spank_t sp, unsigned int collectors)
{
	char text[COLLECTORS_TEXT_SIZE];
	spank_err_t rc;

	collectors_format(collectors, text);
	if (collectors)
		rc = spank_job_control_setenv(sp, PROFILING_CONTROL_ENV, text,
					      1);
	else
		rc = spank_job_control_unsetenv(sp, PROFILING_CONTROL_ENV);
	if (rc == ESPANK_SUCCESS)
		return 0;
	slurm_error("kernel_profile: the collectors cannot be handed to "
		    "slurmctld: %s",
		    spank_strerror(rc));
	return -1;
}

int profiling_close_other_ways(spank_t sp)
{
	spank_err_t rc =
		spank_job_control_unsetenv(sp, SLURM_PROFILING_OPTION_ENV);

	unsetenv(SLURM_PROFILING_OPTION_ENV);
	unsetenv(JOB_PROFILING_OPTION_ENV);
	if (rc == ESPANK_SUCCESS)
		return 0;
	slurm_error("kernel_profile: Slurm's copy of --" PROFILING_NAME
		    " cannot be taken back: %s",
		    spank_strerror(rc));
	return -1;
}
