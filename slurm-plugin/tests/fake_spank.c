/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
#include "fake_spank.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ENV_MAX 32
#define OPTION_ENV "_SLURM_SPANK_OPTION_kernel_profile_kernel_profile"
#define PROFILING_OPTION_ENV \
	"_SLURM_SPANK_OPTION_kernel_profile_kernel_profiling"

struct env {
	char *names[ENV_MAX];
	char *values[ENV_MAX];
	int count;
};

static struct spank_handle handle;
static enum spank_context context;
static struct env control, jobenv;
/* In the order in which they were registered. */
static struct {
	const struct spank_option *option;
	char *value;
	bool used;
} options[2];
static size_t registered;
static const char *prolog_option;

spank_t fake_sp = &handle;
char fake_log[FAKE_LOG_SIZE];
uint32_t fake_job_id;
spank_err_t fake_register_rc;
spank_err_t fake_control_rc;
spank_err_t fake_item_rc;
spank_err_t fake_setenv_rc;

static const char *env_get(const struct env *env, const char *name)
{
	for (int i = 0; i < env->count; i++) {
		if (strcmp(env->names[i], name) == 0)
			return env->values[i];
	}
	return NULL;
}

static void env_unset(struct env *env, const char *name)
{
	for (int i = 0; i < env->count; i++) {
		if (strcmp(env->names[i], name) != 0)
			continue;
		free(env->names[i]);
		free(env->values[i]);
		env->count--;
		env->names[i] = env->names[env->count];
		env->values[i] = env->values[env->count];
		return;
	}
}

static void env_set(struct env *env, const char *name, const char *value)
{
	env_unset(env, name);
	if (env->count == ENV_MAX)
		abort();
	env->names[env->count] = strdup(name);
	env->values[env->count] = strdup(value);
	env->count++;
}

static void env_clear(struct env *env)
{
	while (env->count)
		env_unset(env, env->names[0]);
}

void fake_reset(enum spank_context next)
{
	static const char *const ours[] = {
		"SLURM_JOB_ID",
		"SLURM_HET_SIZE",
		"SLURM_PACK_SIZE",
		"SPANK_KERNEL_PROFILE",
		"SLURM_SPANK_KERNEL_PROFILE",
		"SLURM_KERNEL_PROFILE_STEP",
		"KERNEL_BROKER_PROFILE",
		"KERNEL_BROKER_VERSION",
		"KERNEL_BROKER_RELEASE",
		"KERNEL_BROKER_BUILD_ID",
		"SLURM_SPANK_KERNEL_PROFILING",
		OPTION_ENV,
		"SLURM_SPANK_" OPTION_ENV,
		PROFILING_OPTION_ENV,
		"SLURM_SPANK_" PROFILING_OPTION_ENV,
	};

	for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
		unsetenv(ours[i]);
	context = next;
	env_clear(&control);
	env_clear(&jobenv);
	for (size_t i = 0; i < registered; i++)
		free(options[i].value);
	memset(options, 0, sizeof(options));
	registered = 0;
	prolog_option = NULL;
	fake_log[0] = '\0';
	fake_job_id = 4711;
	fake_register_rc = ESPANK_SUCCESS;
	fake_control_rc = ESPANK_SUCCESS;
	fake_item_rc = ESPANK_SUCCESS;
	fake_setenv_rc = ESPANK_SUCCESS;
}

const struct spank_option *fake_option(void)
{
	return options[0].option;
}

const struct spank_option *fake_profiling_option(void)
{
	return options[1].option;
}

static int use(size_t which, const char *value)
{
	const struct spank_option *option = options[which].option;
	int rc = option->cb(option->val, value, context == S_CTX_REMOTE);

	if (rc == 0) {
		free(options[which].value);
		options[which].value = value ? strdup(value) : NULL;
		options[which].used = true;
	}
	return rc;
}

int fake_use_option(const char *value)
{
	return use(0, value);
}

int fake_use_profiling(const char *value)
{
	return use(1, value);
}

int fake_use_environment(void)
{
	const char *value = getenv("SLURM_SPANK_" OPTION_ENV);
	int rc = value ? use(0, value) : 0;

	value = getenv("SLURM_SPANK_" PROFILING_OPTION_ENV);
	return rc || !value ? rc : use(1, value);
}

void fake_before_post_opt(void)
{
	static const char *const names[] = { OPTION_ENV, PROFILING_OPTION_ENV };

	for (size_t i = 0; i < registered; i++) {
		const char *value = options[i].value ? options[i].value : "";

		if (!options[i].used)
			continue;
		setenv(names[i], value, 1);
		env_set(&control, names[i], value);
	}
}

void fake_after_post_opt(void)
{
	for (int i = 0; i < control.count; i++) {
		char name[256];

		snprintf(name, sizeof(name), "SLURM_SPANK_%s",
			 control.names[i]);
		setenv(name, control.values[i], 1);
	}
}

void fake_forget_control(void)
{
	env_clear(&control);
}

void fake_set_prolog_option(const char *value)
{
	prolog_option = value;
}

const char *fake_control(const char *name)
{
	return env_get(&control, name);
}

const char *fake_jobenv(const char *name)
{
	return env_get(&jobenv, name);
}

void fake_set_jobenv(const char *name, const char *value)
{
	env_set(&jobenv, name, value);
}

/* From here on: what Slurm gives a plugin. */

const char *spank_strerror(spank_err_t err)
{
	return err == ESPANK_SUCCESS ? "Success" : "Generic error";
}

spank_context_t spank_context(void)
{
	return context;
}

spank_err_t spank_option_register(spank_t sp, struct spank_option *opt)
{
	if (sp != fake_sp || !opt || !opt->name || !opt->usage)
		return ESPANK_BAD_ARG;
	if (registered == sizeof(options) / sizeof(options[0]))
		return ESPANK_BAD_ARG;
	if (fake_register_rc == ESPANK_SUCCESS)
		options[registered++].option = opt;
	return fake_register_rc;
}

spank_err_t spank_option_getopt(spank_t sp, struct spank_option *opt,
				char **optarg)
{
	if (sp != fake_sp || !opt->name || !optarg)
		return ESPANK_BAD_ARG;
	if (context != S_CTX_JOB_SCRIPT)
		return ESPANK_NOT_AVAIL;
	*optarg = (char *)prolog_option;
	return prolog_option ? ESPANK_SUCCESS : ESPANK_ERROR;
}

spank_err_t spank_get_item(spank_t sp, spank_item_t item, ...)
{
	va_list args;

	if (sp != fake_sp || item != S_JOB_ID)
		return ESPANK_BAD_ARG;
	if (context != S_CTX_REMOTE && context != S_CTX_JOB_SCRIPT)
		return ESPANK_NOT_AVAIL;
	if (fake_item_rc != ESPANK_SUCCESS)
		return fake_item_rc;
	va_start(args, item);
	*va_arg(args, uint32_t *) = fake_job_id;
	va_end(args);
	return ESPANK_SUCCESS;
}

spank_err_t spank_getenv(spank_t sp, const char *var, char *buf, int len)
{
	const char *value = env_get(&jobenv, var);

	if (sp != fake_sp || len < 0)
		return ESPANK_BAD_ARG;
	if (context != S_CTX_REMOTE)
		return ESPANK_NOT_REMOTE;
	if (!value)
		return ESPANK_ENV_NOEXIST;
	return snprintf(buf, (size_t)len, "%s", value) >= len ? ESPANK_NOSPACE :
								ESPANK_SUCCESS;
}

spank_err_t spank_setenv(spank_t sp, const char *var, const char *val,
			 int overwrite)
{
	if (sp != fake_sp || !var || !val || !overwrite)
		return ESPANK_BAD_ARG;
	if (context != S_CTX_REMOTE)
		return ESPANK_NOT_REMOTE;
	if (fake_setenv_rc == ESPANK_SUCCESS)
		env_set(&jobenv, var, val);
	return fake_setenv_rc;
}

spank_err_t spank_unsetenv(spank_t sp, const char *var)
{
	if (sp != fake_sp || !var)
		return ESPANK_BAD_ARG;
	if (context != S_CTX_REMOTE)
		return ESPANK_NOT_REMOTE;
	env_unset(&jobenv, var);
	return ESPANK_SUCCESS;
}

static spank_err_t control_access(spank_t sp)
{
	if (sp != fake_sp)
		return ESPANK_BAD_ARG;
	if (context != S_CTX_LOCAL && context != S_CTX_ALLOCATOR)
		return ESPANK_NOT_LOCAL;
	return fake_control_rc;
}

spank_err_t spank_job_control_setenv(spank_t sp, const char *name,
				     const char *value, int overwrite)
{
	spank_err_t rc = control_access(sp);

	if (rc == ESPANK_SUCCESS && !overwrite)
		return ESPANK_BAD_ARG;
	if (rc == ESPANK_SUCCESS)
		env_set(&control, name, value);
	return rc;
}

spank_err_t spank_job_control_unsetenv(spank_t sp, const char *name)
{
	spank_err_t rc = control_access(sp);

	if (rc == ESPANK_SUCCESS)
		env_unset(&control, name);
	return rc;
}

static void log_line(const char *level, const char *format, va_list args)
{
	size_t used = strlen(fake_log);

	snprintf(fake_log + used, sizeof(fake_log) - used, "%s", level);
	used = strlen(fake_log);
	vsnprintf(fake_log + used, sizeof(fake_log) - used, format, args);
	used = strlen(fake_log);
	snprintf(fake_log + used, sizeof(fake_log) - used, "\n");
}

#define LOGGER(function, level)                \
	void function(const char *format, ...) \
	{                                      \
		va_list args;                  \
		va_start(args, format);        \
		log_line(level, format, args); \
		va_end(args);                  \
	}

LOGGER(slurm_info, "info: ")
LOGGER(slurm_error, "error: ")
LOGGER(slurm_debug, "debug: ")
LOGGER(slurm_spank_log, "user: ")
