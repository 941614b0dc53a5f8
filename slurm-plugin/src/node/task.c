/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
#include "node/task.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "node/gate.h"
#include "common/names.h"

static void set(spank_t sp, const char *name, const char *value)
{
	spank_err_t rc = spank_setenv(sp, name, value, 1);

	if (rc != ESPANK_SUCCESS)
		slurm_error("kernel_profile: %s cannot be set in the job's "
			    "environment: %s",
			    name, spank_strerror(rc));
}

/* What is not known for sure is not said, nor left over from elsewhere. */
static void clear(spank_t sp)
{
	static const char *const names[] = { JOB_PROFILE_ENV, JOB_VERSION_ENV,
					     JOB_RELEASE_ENV,
					     JOB_BUILD_ID_ENV };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		(void)spank_unsetenv(sp, names[i]);
}

int task_environment(spank_t sp, const struct settings *settings)
{
	struct gate_facts facts = { .ref = NULL };
	char cause[GATE_CAUSE_SIZE];
	char version[REF_VERSION_DIGITS + 2];

	clear(sp);
	gate_read_node(settings, &facts);
	if (!gate_claim_holds(&facts, cause)) {
		slurm_debug("kernel_profile: no kernel named in the job's "
			    "environment: %s",
			    cause);
		return 0;
	}
	snprintf(version, sizeof(version), "%u",
		 (unsigned int)facts.state.kernel.version);
	set(sp, JOB_PROFILE_ENV, facts.state.kernel.name);
	if (facts.state.kernel.version)
		set(sp, JOB_VERSION_ENV, version);
	set(sp, JOB_RELEASE_ENV, facts.state.release);
	set(sp, JOB_BUILD_ID_ENV, facts.state.build_id);
	return 0;
}

/* A step's own --kernel-profile, where srun could not compare it itself. */
static bool read_step_ref(spank_t sp, struct ref *ref)
{
	char text[REF_TEXT_SIZE];

	if (spank_getenv(sp, STEP_ENV, text, sizeof(text)) != ESPANK_SUCCESS)
		return false;
	return ref_parse(text, ref) == REF_OK;
}

/*
 * What srun knows of the job's own kernel, if it is this job that it speaks of:
 * a step may be sent into another job from within one.
 */
static bool read_job_ref(spank_t sp, uint32_t job, struct ref *ref)
{
	char text[STEP_JOB_SIZE];
	char *end;
	unsigned long id;

	if (spank_getenv(sp, STEP_JOB_ENV, text, sizeof(text)) !=
	    ESPANK_SUCCESS)
		return false;
	errno = 0;
	id = strtoul(text, &end, 10);
	return !errno && end != text && *end == '/' && id == job &&
	       ref_parse(end + 1, ref) == REF_OK && !ref_is_stock(ref);
}

static int refuse(const struct gate_facts *facts, const char *cause)
{
	char node[256];

	gate_describe_node(facts, node, sizeof(node));
	/* This one goes to the user's terminal too. */
	slurm_spank_log("kernel-broker: job %u: task refused: node runs %s, "
			"because %s",
			(unsigned int)facts->job, node, cause);
	return -1;
}

int task_check(spank_t sp, const struct settings *settings)
{
	struct gate_facts facts = { .ref = NULL };
	char cause[GATE_CAUSE_SIZE];
	char asked[REF_TEXT_SIZE];
	struct ref step, job;
	bool has_step = read_step_ref(sp, &step);
	int known = spank_get_item(sp, S_JOB_ID, &facts.job);

	if (known == ESPANK_SUCCESS && read_job_ref(sp, facts.job, &job))
		facts.ref = &job;
	/* A task that runs srun must not hand it this step's request. */
	(void)spank_unsetenv(sp, STEP_ENV);
	(void)spank_unsetenv(sp, STEP_JOB_ENV);
	gate_read_node(settings, &facts);
	if (known != ESPANK_SUCCESS)
		return refuse(&facts, "Slurm does not tell the job's id");
	/*
	 * Only a prolog knows for sure what the job wanted. Where srun does
	 * not say it, the kernel must be the job's own: the one that was
	 * prepared for this very job, or stock on a node that has not lost
	 * the job's.
	 */
	if (!facts.ref && gate_claim_is_current(&facts) &&
	    !ref_is_stock(&facts.state.kernel))
		facts.ref = &facts.state.kernel;
	if (!gate_judge(&facts, cause))
		return refuse(&facts, cause);
	if (!gate_claim_is_current(&facts))
		facts.state.kernel = (struct ref){ .name = REF_STOCK };
	if (!has_step || ref_agree(&step, &facts.state.kernel))
		return 0;
	ref_format(&step, asked);
	snprintf(cause, sizeof(cause),
		 "the step asks for %s and all steps of a job run on its "
		 "kernel",
		 asked);
	return refuse(&facts, cause);
}
