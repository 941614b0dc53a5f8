/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
/* sbatch, salloc and srun, as Slurm drives the plugin in them. */
#include <errno.h>
#include <stdlib.h>

#include "fake_spank.h"
#include "sandbox.h"
#include "tap.h"

#define OPTION_ENV "_SLURM_SPANK_OPTION_kernel_profile_kernel_profile"
#define DEFAULT_ENV "SLURM_SPANK_" OPTION_ENV

static int argc;
static char **argv;

static void begin(enum spank_context context)
{
	fake_reset(context);
	is_int(slurm_spank_init(fake_sp, argc, argv), 0, "init");
}

static int post_opt(void)
{
	int rc;

	fake_before_post_opt();
	rc = slurm_spank_init_post_opt(fake_sp, argc, argv);
	fake_after_post_opt();
	return rc;
}

/* One component that says --kernel-profile=value, or nothing. */
static int component(const char *value)
{
	int rc = fake_use_environment();

	if (rc == 0 && value)
		rc = fake_use_option(value);
	return rc ? rc : post_opt();
}

static void exports(const char *value, const char *what)
{
	is_text(fake_control("KERNEL_PROFILE"), value, "%s: exported", what);
	is_text(fake_control(OPTION_ENV), NULL, "%s: no second channel", what);
	is_text(getenv(OPTION_ENV), NULL, "%s: nor a third", what);
	is_text(getenv(DEFAULT_ENV), NULL, "%s: nor a fourth", what);
}

static void test_register(void)
{
	begin(S_CTX_ALLOCATOR);
	is_text(fake_option()->name, "kernel-profile", "name");
	is_text(fake_option()->arginfo, "NAME[@VERSION]", "argument");
	ok(strlen(fake_option()->usage) > 10, "usage");
	ok(fake_option()->has_arg, "has an argument");
	fake_reset(S_CTX_ALLOCATOR);
	fake_register_rc = ESPANK_ERROR;
	is_int(slurm_spank_init(fake_sp, argc, argv), -1, "no registration");
	has_text(fake_log, "error: ", "is an error");
}

static void test_accepted(enum spank_context context)
{
	begin(context);
	is_int(component(NULL), 0, "a plain job");
	exports(NULL, "a plain job");
	is_text(fake_log, "", "and nothing is said");
	begin(context);
	is_int(component("mitgcm"), 0, "a profile");
	exports("mitgcm", "a profile");
	begin(context);
	is_int(component("mitgcm@2"), 0, "a version");
	exports("mitgcm@2", "a version");
	begin(context);
	is_int(component("stock"), 0, "stock");
	exports(NULL, "stock");
	is_text(getenv("SLURM_SPANK_KERNEL_PROFILE"), NULL, "stock: job env");
	begin(context);
	fake_use_option("mitgcm");
	is_int(fake_use_option("mitgcm"), 0, "twice the same");
	is_int(post_opt(), 0, "and its end");
	exports("mitgcm", "twice the same");
}

static void refused(const char *value, const char *why)
{
	begin(S_CTX_ALLOCATOR);
	is_int(component(value), -1, "%s is refused", value);
	has_text(fake_log, why, "because %s", why);
}

static void test_refused(void)
{
	refused("", "a profile name is missing");
	refused("a,b", "one job has one profile");
	refused("A", "did you mean \"a\"?");
	refused("MITgcm@2", "did you mean \"mitgcm@2\"?");
	refused("A b", "a name has 1 to 64");
	refused("a@x", "a version is a positive");
	refused("mitgmc",
		"error: unknown kernel profile \"mitgmc\"; did you mean "
		"\"mitgcm\"? ('kernelctl profile list' shows all)\n");
	refused("lamps", "; did you mean \"lammps\"? (");
	refused("io4", "; did you mean \"io1\", \"io2\" or \"io3\"? (");
	refused("zebra", "error: unknown kernel profile \"zebra\" "
			 "('kernelctl profile list' shows all)\n");
	refused("mitgcm@9", "error: unknown kernel profile \"mitgcm@9\" (");
	refused("broken", "error: unknown kernel profile \"broken\" (");
	begin(S_CTX_ALLOCATOR);
	fake_use_option("mitgcm");
	is_int(fake_use_option("mitgcm@3"), -1, "two different ones");
	has_text(fake_log,
		 "--kernel-profile asks for mitgcm and for mitgcm@3, but one "
		 "job has one profile",
		 "and both are named");
	sandbox_program("kernelctl", "#!/bin/sh\nexit 3\n");
	refused("mitgmc", "error: the kernel profile \"mitgmc\" is refused; "
			  "did you mean \"mitgcm\"? (");
}

/* scrontab takes each option, and the job would run on stock. */
static void test_scrontab(void)
{
	char *name = program_invocation_short_name;

	program_invocation_short_name = (char *)"scrontab";
	refused("mitgcm", "--kernel-profile has no effect in a crontab");
	program_invocation_short_name = name;
}

/* The broker hints by itself, and knows names that the snapshot does not. */
static void test_near_miss_is_said_once(void)
{
	sandbox_program("kernelctl",
			"#!/bin/sh\necho \"unknown kernel profile "
			"\\\"$3\\\"; did you mean \\\"mitgcm\\\"?\" "
			">&2\nexit 3\n");
	refused("mitgmc", "error: unknown kernel profile \"mitgmc\"; did you "
			  "mean \"mitgcm\"? ('kernelctl profile list' shows "
			  "all)\n");
}

/* A snapshot that does not say yes is stale, and the broker's word counts. */
static void test_broker(void)
{
	sandbox_program("kernelctl", "#!/bin/sh\nexit 0\n");
	begin(S_CTX_ALLOCATOR);
	is_int(component("new@4"), 0, "the broker knows what we do not");
	exports("new@4", "a new profile");
	is_text(fake_log, "", "and nothing is said");
	begin(S_CTX_LOCAL);
	is_int(component("broken"), 0, "one that was released since");
	exports("broken", "a released profile");
	sandbox_program("kernelctl", "#!/bin/sh\necho gone >&2\nexit 1\n");
	begin(S_CTX_ALLOCATOR);
	is_int(component("new"), 0, "the broker is away");
	has_text(fake_log,
		 "info: warning: whether there is a kernel profile \"new\" "
		 "could not be checked (gone)",
		 "that is a warning");
	exports("new", "an unchecked profile");
	begin(S_CTX_ALLOCATOR);
	is_int(component("mitgcm"), 0, "what the snapshot knows");
	is_text(fake_log, "", "asks nobody");
}

static void test_no_snapshot(const char *snapshot)
{
	if (snapshot)
		sandbox_write("catalog.snapshot", snapshot);
	else
		sandbox_remove("catalog.snapshot");
	sandbox_program("kernelctl", "#!/bin/sh\nexit 0\n");
	begin(S_CTX_ALLOCATOR);
	is_int(component("mitgcm"), 0, "the broker accepts");
	sandbox_program("kernelctl",
			"#!/bin/sh\necho \"unknown kernel profile \\\"$3\\\"\""
			" >&2\nexit 3\n");
	begin(S_CTX_ALLOCATOR);
	is_int(component("mitgmc"), -1, "the broker refuses");
	has_text(fake_log, "error: unknown kernel profile \"mitgmc\" (",
		 "without near misses");
	begin(S_CTX_ALLOCATOR);
	is_int(component("stock"), 0, "stock is always there");
	sandbox_remove("kernelctl");
	begin(S_CTX_ALLOCATOR);
	is_int(component("mitgcm"), 0, "no kernelctl either");
	has_text(fake_log, "info: warning: ", "is a warning");
	exports("mitgcm", "no kernelctl");
}

/* One load of the plugin, several components: nothing may leak. */
static void test_het(enum spank_context context, bool forgets)
{
	static const char *const values[] = { "mitgcm", NULL,     "lammps@1",
					      "stock",  "mitgcm", NULL };
	static const char *const want[] = { "mitgcm", NULL,     "lammps@1",
					    NULL,     "mitgcm", NULL };

	begin(context);
	for (int i = 0; i < 6; i++) {
		if (forgets)
			fake_forget_control();
		is_int(component(values[i]), 0, "component %d", i);
		exports(want[i], "component");
		is_text(getenv("SLURM_SPANK_KERNEL_PROFILE"), want[i],
			"component %d: job env", i);
	}
}

/* A user's default holds for all components, and weighs least. */
static void test_default(void)
{
	begin(S_CTX_ALLOCATOR);
	setenv(DEFAULT_ENV, "lammps", 1);
	is_int(component(NULL), 0, "first component");
	exports("lammps", "the default");
	is_int(component("mitgcm"), 0, "second component");
	exports("mitgcm", "the option");
	is_int(component(NULL), 0, "third component");
	exports("lammps", "the default again");
	is_int(component("stock"), 0, "fourth component");
	exports(NULL, "stock");
	begin(S_CTX_ALLOCATOR);
	setenv(DEFAULT_ENV, "Bad", 1);
	is_int(component(NULL), -1, "a malformed default");
	begin(S_CTX_ALLOCATOR);
	setenv(DEFAULT_ENV, "zebra", 1);
	is_int(component(NULL), -1, "an unknown default");
	has_text(fake_log, "unknown kernel profile \"zebra\"", "says so");
	begin(S_CTX_ALLOCATOR);
	setenv(DEFAULT_ENV, "zebra", 1);
	is_int(component("mitgcm"), 0, "an unknown default, not used");
	is_text(fake_log, "", "is no matter");
}

static void variable_of(char *program, const char *name)
{
	char *own = program_invocation_short_name;

	program_invocation_short_name = program;
	begin(strcmp(program, "srun") ? S_CTX_ALLOCATOR : S_CTX_LOCAL);
	setenv("SBATCH_KERNEL_PROFILE", "zebra", 1);
	setenv("SALLOC_KERNEL_PROFILE", "zebra", 1);
	setenv("SLURM_KERNEL_PROFILE", "zebra", 1);
	setenv(name, "mitgcm@2", 1);
	setenv(DEFAULT_ENV, "lammps", 1);
	is_int(component(NULL), 0, "%s of %s", name, program);
	exports("mitgcm@2", program);
	is_int(component("lammps"), 0, "%s: the option", program);
	exports("lammps", "the option goes first");
	is_int(component("stock"), 0, "%s: stock", program);
	exports(NULL, "stock, too");
	setenv(name, "", 1);
	is_int(component(NULL), 0, "%s is empty", name);
	exports("lammps", "the default");
	setenv(name, "MITgcm", 1);
	is_int(component(NULL), -1, "%s in other letters", name);
	has_text(fake_log, name, "names the variable");
	has_text(fake_log, "did you mean \"mitgcm\"?", "and the profile");
	setenv(name, "zebra", 1);
	is_int(component(NULL), -1, "%s with an unknown name", name);
	has_text(fake_log, "unknown kernel profile \"zebra\"", "says so");
	program_invocation_short_name = own;
	begin(S_CTX_ALLOCATOR);
	setenv(name, "mitgcm", 1);
	is_int(component(NULL), 0, "another program");
	exports(NULL, "has no such variable");
}

/* SBATCH_KERNEL_PROFILE and its like are as Slurm's own variables. */
static void test_variables(void)
{
	static char sbatch[] = "sbatch", salloc[] = "salloc", srun[] = "srun";

	variable_of(sbatch, "SBATCH_KERNEL_PROFILE");
	variable_of(salloc, "SALLOC_KERNEL_PROFILE");
	variable_of(srun, "SLURM_KERNEL_PROFILE");
	/* As other variables of sbatch it counts within a job, too. */
	program_invocation_short_name = sbatch;
	begin(S_CTX_ALLOCATOR);
	setenv("SLURM_JOB_ID", "12", 1);
	setenv("SBATCH_KERNEL_PROFILE", "mitgcm", 1);
	is_int(component(NULL), 0, "within a job");
	exports("mitgcm", "within a job");
	unsetenv("SLURM_JOB_ID");
	unsetenv("SBATCH_KERNEL_PROFILE");
}

static void test_nested_submission(void)
{
	static const char *const outer[] = {
		"SLURM_SPANK_KERNEL_PROFILE", "KERNEL_BROKER_PROFILE",
		"KERNEL_BROKER_VERSION",      "KERNEL_BROKER_RELEASE",
		"KERNEL_BROKER_BUILD_ID",     "SLURM_KERNEL_PROFILE_STEP",
		"SLURM_KERNEL_PROFILE_JOB",
	};

	begin(S_CTX_ALLOCATOR);
	setenv("SLURM_JOB_ID", "12", 1);
	setenv(DEFAULT_ENV, "mitgcm", 1);
	for (size_t i = 0; i < 7; i++)
		setenv(outer[i], i == 2 ? "3" : "mitgcm", 1);
	is_int(component(NULL), 0, "a plain job from within a profile job");
	exports(NULL, "nothing is inherited");
	for (size_t i = 0; i < 7; i++)
		is_text(getenv(outer[i]), NULL, "%s is gone", outer[i]);
	begin(S_CTX_ALLOCATOR);
	setenv("SLURM_JOB_ID", "12", 1);
	setenv("SLURM_SPANK_KERNEL_PROFILE", "mitgcm", 1);
	is_int(component("lammps"), 0, "another profile from within");
	exports("lammps", "its own");
}

static void begin_step(const char *job_profile)
{
	/* A step is srun's own matter: no catalog, no broker. */
	sandbox_remove("catalog.snapshot");
	sandbox_program("kernelctl", "#!/bin/sh\nexit 3\n");
	begin(S_CTX_LOCAL);
	setenv("SLURM_JOB_ID", "12", 1);
	if (job_profile)
		setenv("SLURM_SPANK_KERNEL_PROFILE", job_profile, 1);
}

static void step(const char *job, const char *ref, bool accepted)
{
	char word[128] = "";

	begin_step(job);
	is_int(component(ref), accepted ? 0 : -1, "job %s, step %s: %s",
	       job ? job : "plain", ref ? ref : "plain",
	       accepted ? "accepted" : "refused");
	if (!accepted) {
		has_text(fake_log, "job 12 runs on", "and why is said");
		return;
	}
	is_text(fake_control("KERNEL_PROFILE"),
		job && strcmp(job, "stock") != 0 ? job : NULL,
		"the job's own profile is handed on");
	is_text(getenv("SLURM_KERNEL_PROFILE_STEP"), ref,
		"the step's ref is for the node to check");
	if (job && strcmp(job, "stock") != 0)
		snprintf(word, sizeof(word), "12/%s", job);
	is_text(getenv("SLURM_KERNEL_PROFILE_JOB"), *word ? word : NULL,
		"and so is the job's kernel");
}

static void test_steps(void)
{
	step("mitgcm", NULL, true);
	step("mitgcm", "mitgcm", true);
	step("mitgcm", "mitgcm@3", true);
	step("mitgcm@3", "mitgcm", true);
	step("mitgcm@3", "mitgcm@2", false);
	step("mitgcm", "lammps", false);
	step("mitgcm", "stock", false);
	step(NULL, NULL, true);
	step(NULL, "stock", true);
	step(NULL, "mitgcm", false);
	step("Junk", "mitgcm", false);
	begin_step("mitgcm");
	setenv("KERNEL_BROKER_PROFILE", "mitgcm", 1);
	setenv("KERNEL_BROKER_VERSION", "3", 1);
	is_int(component("mitgcm@2"), -1, "a task knows its version");
	begin_step("lammps");
	setenv("KERNEL_BROKER_PROFILE", "mitgcm", 1);
	setenv("KERNEL_BROKER_VERSION", "junk", 1);
	is_int(component("mitgcm@2"), 0, "a task knows its profile best");
	begin_step("mitgcm");
	setenv(DEFAULT_ENV, "lammps", 1);
	is_int(component(NULL), 0, "a default does not concern a step");
	is_text(fake_control("KERNEL_PROFILE"), "mitgcm", "the job's holds");
}

static void test_het_steps(void)
{
	begin_step("mitgcm");
	setenv("SLURM_HET_SIZE", "2", 1);
	is_int(component("lammps"), 0, "in a het job only the node knows");
	is_text(getenv("SLURM_KERNEL_PROFILE_STEP"), "lammps", "it is told");
	is_text(fake_control("KERNEL_PROFILE"), NULL, "no component's own");
	fake_forget_control();
	is_int(component("lammps"), 0, "a second component, the same");
	is_text(getenv("SLURM_KERNEL_PROFILE_STEP"), "lammps", "still told");
	is_int(component("mitgcm"), 0, "a third, another");
	is_text(getenv("SLURM_KERNEL_PROFILE_STEP"), NULL, "cannot be told");
	is_int(component("lammps"), 0, "a fourth");
	is_text(getenv("SLURM_KERNEL_PROFILE_STEP"), NULL, "no more");
	begin_step("mitgcm");
	setenv("SLURM_PACK_SIZE", "2", 1);
	is_int(component(NULL), 0, "older name, first says nothing");
	is_int(component("lammps"), 0, "second says something");
	is_text(getenv("SLURM_KERNEL_PROFILE_STEP"), NULL, "cannot be told");
}

static void test_control_fails(void)
{
	begin(S_CTX_ALLOCATOR);
	fake_control_rc = ESPANK_BAD_ARG;
	is_int(component("mitgcm"), -1, "a profile that cannot be handed on");
	has_text(fake_log, "cannot be handed to slurmctld", "is an error");
	has_text(fake_log, "cannot be taken back", "as is Slurm's copy");
	begin(S_CTX_ALLOCATOR);
	fake_control_rc = ESPANK_BAD_ARG;
	is_int(component(NULL), -1, "one that cannot be taken back");
	has_text(fake_log, "an earlier profile", "is an error");
}

static void write_catalog(void)
{
	sandbox_write("catalog.snapshot", "kernel-broker-snapshot 1\n"
					  "generated 2026-11-20T10:00:00Z\n"
					  "profile stock 1 1 available\n"
					  "profile mitgcm 3 1,2,3 available\n"
					  "profile lammps 1 1 available\n"
					  "profile io1 1 1 available\n"
					  "profile io2 1 1 available\n"
					  "profile io3 1 1 available\n"
					  "profile broken 1 1 quarantined\n"
					  "end\n");
	sandbox_program("kernelctl",
			"#!/bin/sh\necho \"unknown kernel profile \\\"$3\\\"\""
			" >&2\nexit 3\n");
}

int main(void)
{
	sandbox_make();
	argc = sandbox_args(&argv);
	write_catalog();
	test_register();
	test_accepted(S_CTX_ALLOCATOR);
	test_accepted(S_CTX_LOCAL);
	test_refused();
	test_scrontab();
	test_near_miss_is_said_once();
	test_broker();
	write_catalog();
	test_het(S_CTX_ALLOCATOR, false);
	test_het(S_CTX_LOCAL, true);
	test_default();
	test_variables();
	test_nested_submission();
	test_control_fails();
	test_no_snapshot(NULL);
	test_no_snapshot("kernel-broker-snapshot 1\nprofile mitgcm 3 3 avail");
	test_no_snapshot("junk");
	test_steps();
	test_het_steps();
	fake_reset(S_CTX_ERROR);
	return tap_end();
}
