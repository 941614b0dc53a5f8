/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
#include "submit/option.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/names.h"
#include "submit/check.h"

static struct option_state state;

/*
 * Slurm calls back with the very text of the environment variable when the
 * value comes from there, and in no other case.
 */
static bool is_from_environment(const char *value)
{
	return value == getenv(JOB_OPTION_ENV);
}

static int take(const struct ref *ref)
{
	char first[REF_TEXT_SIZE], second[REF_TEXT_SIZE];

	if (state.given && !ref_equal(&state.ref, ref)) {
		ref_format(&state.ref, first);
		ref_format(ref, second);
		slurm_error("--" OPTION_NAME " asks for %s and for %s, but "
			    "one job has one profile",
			    first, second);
		return -1;
	}
	if (state.given)
		return 0;
	state.unchecked = check_waits(ref);
	if (!state.unchecked && check_ref(ref))
		return -1;
	state.given = true;
	state.ref = *ref;
	return 0;
}

/* A name in other letters is a slip that a user does not see. */
static void log_no_ref(const char *what, const char *value,
		       enum ref_error error)
{
	char lower[REF_TEXT_SIZE];
	struct ref ref;
	size_t length = 0;

	for (; value[length] && length + 1 < sizeof(lower); length++)
		lower[length] = (char)tolower((unsigned char)value[length]);
	lower[length] = '\0';
	if (error == REF_BAD_NAME && !value[length] &&
	    ref_parse(lower, &ref) == REF_OK)
		slurm_error("%s=%.80s: names of profiles have no capitals; "
			    "did you mean \"%s\"?",
			    what, value, lower);
	else
		slurm_error("%s=%.80s: %s", what, value, ref_error_text(error));
}

static int callback(int val, const char *value, int remote)
{
	struct ref ref;
	enum ref_error error;

	(void)val;
	/* A node trusts the job's control environment, not this. */
	if (remote)
		return 0;
	/* It takes every option, and gives its jobs none of the plugin's. */
	if (!strcmp(program_invocation_short_name, "scrontab")) {
		slurm_error("--" OPTION_NAME " has no effect in a crontab of "
			    "Slurm's: have the entry run 'sbatch "
			    "--" OPTION_NAME "=...' instead");
		return -1;
	}
	error = ref_parse(value, &ref);
	if (error) {
		log_no_ref("--" OPTION_NAME, value ? value : "", error);
		return -1;
	}
	if (is_from_environment(value)) {
		state.has_default = true;
		state.fallback = ref;
		return 0;
	}
	return take(&ref);
}

struct spank_option kernel_profile_option = {
	.name = (char *)OPTION_NAME,
	.arginfo = (char *)"NAME[@VERSION]",
	.usage = (char *)"run the job on the kernel of this profile "
			 "('kernelctl profile list' shows all)",
	.has_arg = 1,
	.val = 0,
	.cb = callback,
};

const struct option_state *option_state(void)
{
	return &state;
}

int option_from_variable(struct ref *ref)
{
	static const struct {
		const char *program, *variable;
	} all[] = { { "sbatch", SBATCH_ENV },
		    { "salloc", SALLOC_ENV },
		    { "srun", SRUN_ENV } };
	const char *value = NULL, *name = NULL;
	enum ref_error error;

	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
		if (!strcmp(program_invocation_short_name, all[i].program))
			name = all[i].variable;
	if (name)
		value = getenv(name);
	if (!value || !*value)
		return 0;
	error = ref_parse(value, ref);
	if (!error)
		return 1;
	log_no_ref(name, value, error);
	return -1;
}

void option_next_component(void)
{
	state.given = false;
	state.unchecked = false;
}

void option_reset(void)
{
	state = (struct option_state){ .given = false };
}
