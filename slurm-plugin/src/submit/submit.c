/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
#include "submit/submit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/names.h"
#include "submit/check.h"
#include "submit/collectors.h"
#include "submit/option.h"
#include "submit/profiling.h"

/* What the components of this srun asked of their nodes. */
static struct {
	unsigned int components;
	bool differ;
	bool given;
	struct ref ref;
} steps;

void submit_begin(const struct settings *from)
{
	check_begin(from);
	memset(&steps, 0, sizeof(steps));
	option_reset();
	profiling_next_component();
}

static int control_set(spank_t sp, const struct ref *ref)
{
	char text[REF_TEXT_SIZE];
	spank_err_t rc;

	ref_format(ref, text);
	rc = spank_job_control_setenv(sp, CONTROL_ENV, text, 1);
	if (rc == ESPANK_SUCCESS)
		return 0;
	slurm_error("kernel_profile: the profile cannot be handed to "
		    "slurmctld: %s",
		    spank_strerror(rc));
	return -1;
}

/*
 * Slurm forwards the option by ways of its own too, and by those the first
 * component's value would reach the next one, and a job's value the jobs it
 * submits. With them closed, KERNEL_PROFILE is the only word on the matter.
 */
static int close_other_ways(spank_t sp)
{
	spank_err_t rc = spank_job_control_unsetenv(sp, SLURM_OPTION_ENV);

	unsetenv(SLURM_OPTION_ENV);
	unsetenv(JOB_OPTION_ENV);
	if (rc == ESPANK_SUCCESS)
		return 0;
	slurm_error("kernel_profile: Slurm's copy of the option cannot be "
		    "taken back: %s",
		    spank_strerror(rc));
	return -1;
}

static int control_clear(spank_t sp)
{
	spank_err_t rc = spank_job_control_unsetenv(sp, CONTROL_ENV);

	if (rc == ESPANK_SUCCESS)
		return 0;
	slurm_error("kernel_profile: an earlier profile cannot be taken "
		    "back: %s",
		    spank_strerror(rc));
	return -1;
}

/* A job submitted from within a job is not on that job's kernel. */
static void forget_outer_job(void)
{
	unsetenv(JOB_CONTROL_ENV);
	unsetenv(JOB_PROFILING_ENV);
	unsetenv(JOB_PROFILE_ENV);
	unsetenv(JOB_VERSION_ENV);
	unsetenv(JOB_RELEASE_ENV);
	unsetenv(JOB_BUILD_ID_ENV);
	unsetenv(STEP_ENV);
	unsetenv(STEP_JOB_ENV);
}

/*
 * What the job asks for: the option, else the program's variable, else Slurm's
 * own, which a job's environment has from the outer job. NULL for nothing.
 */
static int wanted(const struct option_state *option, struct ref *variable,
		  const struct ref **ref)
{
	int found = option->given ? 0 : option_from_variable(variable);

	*ref = NULL;
	if (option->given)
		*ref = &option->ref;
	else if (found)
		*ref = variable;
	else if (option->has_default && !check_inside_job())
		*ref = &option->fallback;
	return found < 0 ? -1 : 0;
}

static int export_job(spank_t sp, const struct option_state *option)
{
	struct ref twin = { .name = REF_STOCK };
	struct ref variable;
	const struct ref *ref;
	int rc;

	if (wanted(option, &variable, &ref))
		return -1;
	if (profiling_wanted() & COLLECT_PGO) {
		if (ref)
			twin = *ref;
		if (profiling_instrumented(&twin))
			return -1;
		if (check_ref(&twin)) {
			profiling_say_how(ref);
			return -1;
		}
		ref = &twin;
	} else if (ref && (!option->given || option->unchecked) &&
		   check_ref(ref)) {
		return -1;
	} else if (ref && profiling_wanted() && check_profiled(ref)) {
		return -1;
	}
	forget_outer_job();
	rc = profiling_export(sp, profiling_wanted());
	/* stock is what a job has that says nothing. */
	if (!ref || ref_is_stock(ref))
		return control_clear(sp) ? -1 : rc;
	return control_set(sp, ref) ? -1 : rc;
}

/*
 * Tells the nodes which kernel the job has, so that a step starts nowhere else:
 * neither on a node that was added to the job, nor on one that was reset.
 */
static void publish_job_ref(const struct ref *job)
{
	char ref[REF_TEXT_SIZE];
	char text[STEP_JOB_SIZE];

	ref_format(job, ref);
	snprintf(text, sizeof(text), "%.20s/%s", getenv("SLURM_JOB_ID"), ref);
	if (setenv(STEP_JOB_ENV, text, 1) < 0)
		slurm_error("kernel_profile: " STEP_JOB_ENV " cannot be set");
}

static int export_step(spank_t sp)
{
	struct ref job;
	int rc = profiling_export(sp, 0);

	unsetenv(STEP_JOB_ENV);
	check_job_ref(&job);
	if (check_inside_het_job() || ref_is_stock(&job))
		return control_clear(sp) ? -1 : rc;
	publish_job_ref(&job);
	/* Of use where the prolog runs with the first step only. */
	return control_set(sp, &job) ? -1 : rc;
}

/*
 * srun starts all its components with one environment, so the nodes can check
 * the step's own ref only where all components have the same.
 */
static void publish_step_ref(const struct option_state *option)
{
	char text[REF_TEXT_SIZE];

	if (steps.components++ == 0) {
		steps.given = option->given;
		steps.ref = option->ref;
	} else if (steps.given != option->given ||
		   (steps.given && !ref_equal(&steps.ref, &option->ref))) {
		steps.differ = true;
	}
	unsetenv(STEP_ENV);
	if (!steps.given || steps.differ)
		return;
	ref_format(&steps.ref, text);
	/* Only a check is lost when memory is so short that this fails. */
	if (setenv(STEP_ENV, text, 1) < 0)
		slurm_error("kernel_profile: " STEP_ENV " cannot be set");
}

int submit_post_opt(spank_t sp)
{
	const struct option_state *option = option_state();
	int rc = check_is_step() ? export_step(sp) : export_job(sp, option);

	if (close_other_ways(sp) || profiling_close_other_ways(sp))
		rc = -1;
	if (spank_context() == S_CTX_LOCAL)
		publish_step_ref(option);
	option_next_component();
	profiling_next_component();
	return rc;
}
