/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
#include "submit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "catalogcheck.h"
#include "collectors.h"
#include "names.h"
#include "option.h"
#include "profiling.h"

static struct settings settings;

/* What the components of this srun asked of their nodes. */
static struct {
	unsigned int components;
	bool differ;
	bool given;
	struct wish wish;
} steps;

void submit_begin(const struct settings *from)
{
	settings = *from;
	memset(&steps, 0, sizeof(steps));
	option_reset();
	profiling_next_component();
}

static bool inside_job(void)
{
	return getenv("SLURM_JOB_ID") != NULL;
}

bool submit_is_step(void)
{
	return spank_context() == S_CTX_LOCAL && inside_job();
}

/*
 * A heterogeneous job's environment tells the profile of its first component
 * only, so a step there can be checked by its nodes alone.
 */
static bool inside_het_job(void)
{
	return getenv("SLURM_HET_SIZE") || getenv("SLURM_PACK_SIZE");
}

/* The profile of the job around us, as far as the environment knows. */
static void job_wish(struct wish *wish)
{
	const char *name = getenv(JOB_PROFILE_ENV);
	const char *version = getenv(JOB_VERSION_ENV);
	struct wish found;

	*wish = (struct wish){ .name = WISH_STOCK };
	if (wish_parse(getenv(JOB_CONTROL_ENV), &found) == WISH_OK)
		*wish = found;
	/* A task's environment knows what really runs, and its version. */
	if (wish_parse(name, &found) == WISH_OK && !found.version) {
		*wish = found;
		if (version)
			(void)wish_parse_version(version, strlen(version),
						 &wish->version);
	}
}

static int check_step(const struct wish *wish)
{
	struct wish job;
	char asked[WISH_TEXT_SIZE], has[WISH_TEXT_SIZE];

	if (inside_het_job())
		return 0;
	job_wish(&job);
	if (wish_agree(wish, &job))
		return 0;
	wish_format(wish, asked);
	wish_format(&job, has);
	slurm_error("--" OPTION_NAME "=%s: job %s runs on %s, and all steps "
		    "of a job run on its kernel; submit a job of its own for "
		    "%s",
		    asked, getenv("SLURM_JOB_ID"), has, asked);
	return -1;
}

int submit_check(const struct wish *wish)
{
	if (submit_is_step())
		return check_step(wish);
	return catalog_check(&settings, wish);
}

bool submit_depends(const struct wish *wish)
{
	struct wish twin = *wish;

	return !submit_is_step() && profiling_twin(&twin);
}

static int control_set(spank_t sp, const struct wish *wish)
{
	char text[WISH_TEXT_SIZE];
	spank_err_t rc;

	wish_format(wish, text);
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

static int export_job(spank_t sp, const struct option_state *option)
{
	struct wish twin = { .name = WISH_STOCK };
	const struct wish *wish = NULL;
	int rc;

	if (option->given)
		wish = &option->wish;
	else if (option->has_default && !inside_job())
		wish = &option->fallback;
	if (profiling_wanted() & COLLECT_PGO) {
		if (wish)
			twin = *wish;
		if (profiling_instrumented(&twin))
			return -1;
		if (submit_check(&twin)) {
			profiling_say_how(wish);
			return -1;
		}
		wish = &twin;
	} else if (wish && (!option->given || option->unchecked) &&
		   submit_check(wish)) {
		return -1;
	}
	forget_outer_job();
	rc = profiling_export(sp, profiling_wanted());
	/* stock is what a job has that says nothing. */
	if (!wish || wish_is_stock(wish))
		return control_clear(sp) ? -1 : rc;
	return control_set(sp, wish) ? -1 : rc;
}

/*
 * Tells the nodes which kernel the job has, so that a step starts nowhere else:
 * neither on a node that was added to the job, nor on one that was reset.
 */
static void publish_job_wish(const struct wish *job)
{
	char wish[WISH_TEXT_SIZE];
	char text[STEP_JOB_SIZE];

	wish_format(job, wish);
	snprintf(text, sizeof(text), "%.20s/%s", getenv("SLURM_JOB_ID"), wish);
	if (setenv(STEP_JOB_ENV, text, 1) < 0)
		slurm_error("kernel_profile: " STEP_JOB_ENV " cannot be set");
}

static int export_step(spank_t sp)
{
	struct wish job;
	int rc = profiling_export(sp, 0);

	unsetenv(STEP_JOB_ENV);
	job_wish(&job);
	if (inside_het_job() || wish_is_stock(&job))
		return control_clear(sp) ? -1 : rc;
	publish_job_wish(&job);
	/* Of use where the prolog runs with the first step only. */
	return control_set(sp, &job) ? -1 : rc;
}

/*
 * srun starts all its components with one environment, so the nodes can check
 * the step's own wish only where all components have the same.
 */
static void publish_step_wish(const struct option_state *option)
{
	char text[WISH_TEXT_SIZE];

	if (steps.components++ == 0) {
		steps.given = option->given;
		steps.wish = option->wish;
	} else if (steps.given != option->given ||
		   (steps.given && !wish_equal(&steps.wish, &option->wish))) {
		steps.differ = true;
	}
	unsetenv(STEP_ENV);
	if (!steps.given || steps.differ)
		return;
	wish_format(&steps.wish, text);
	/* Only a check is lost when memory is so short that this fails. */
	if (setenv(STEP_ENV, text, 1) < 0)
		slurm_error("kernel_profile: " STEP_ENV " cannot be set");
}

int submit_post_opt(spank_t sp)
{
	const struct option_state *option = option_state();
	int rc = submit_is_step() ? export_step(sp) : export_job(sp, option);

	if (close_other_ways(sp) || profiling_close_other_ways(sp))
		rc = -1;
	if (spank_context() == S_CTX_LOCAL)
		publish_step_wish(option);
	option_next_component();
	profiling_next_component();
	return rc;
}
