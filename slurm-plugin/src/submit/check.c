/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
#include "submit/check.h"

#include <stdlib.h>
#include <string.h>

#include <slurm/spank.h>

#include "common/names.h"
#include "submit/catalog.h"

static struct settings settings;

void check_begin(const struct settings *from)
{
	settings = *from;
}

bool check_inside_job(void)
{
	return getenv("SLURM_JOB_ID") != NULL;
}

bool check_is_step(void)
{
	return spank_context() == S_CTX_LOCAL && check_inside_job();
}

bool check_inside_het_job(void)
{
	return getenv("SLURM_HET_SIZE") || getenv("SLURM_PACK_SIZE");
}

void check_job_ref(struct ref *ref)
{
	const char *name = getenv(JOB_PROFILE_ENV);
	const char *version = getenv(JOB_VERSION_ENV);
	struct ref found;

	*ref = (struct ref){ .name = REF_STOCK };
	if (ref_parse(getenv(JOB_CONTROL_ENV), &found) == REF_OK)
		*ref = found;
	/* A task's environment knows what really runs, and its version. */
	if (ref_parse(name, &found) == REF_OK && !found.version) {
		*ref = found;
		if (version)
			(void)ref_parse_version(version, strlen(version),
						&ref->version);
	}
}

static int check_step(const struct ref *ref)
{
	struct ref job;
	char asked[REF_TEXT_SIZE], has[REF_TEXT_SIZE];

	if (check_inside_het_job())
		return 0;
	check_job_ref(&job);
	if (ref_agree(ref, &job))
		return 0;
	ref_format(ref, asked);
	ref_format(&job, has);
	slurm_error("--" OPTION_NAME "=%s: job %s runs on %s, and all steps "
		    "of a job run on its kernel; submit a job of its own for "
		    "%s",
		    asked, getenv("SLURM_JOB_ID"), has, asked);
	return -1;
}

int check_ref(const struct ref *ref)
{
	if (check_is_step())
		return check_step(ref);
	return catalog_check(&settings, ref);
}

int check_profiled(const struct ref *ref)
{
	return check_is_step() ? 0 : catalog_check_profiled(&settings, ref);
}

bool check_waits(const struct ref *ref)
{
	struct ref twin = *ref;

	return !check_is_step() && ref_instrumented(&twin);
}
