/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
/* The node's side: the gate in a prolog, and slurmstepd. */
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "fake_spank.h"
#include "node/cores.h"
#include "sandbox.h"
#include "tap.h"

static int argc;
static char **argv;

static void prolog(const char *control, const char *want, const char *what)
{
	int rc;

	fake_reset(S_CTX_JOB_SCRIPT);
	fake_job_id = 7;
	if (control)
		setenv("SPANK_KERNEL_PROFILE", control, 1);
	rc = slurm_spank_job_prolog(fake_sp, argc, argv);
	is_int(rc, want ? -1 : 0, "%s: %s", what, want ? "refused" : "passes");
	has_text(fake_log, want ? want : "debug: kernel-broker: gate: job 7 ",
		 "%s: the log", what);
}

static void test_prolog(void)
{
	sandbox_node("quiet " SANDBOX_TOKEN "\n");
	sandbox_state("mitgcm", 3, "7", 1);
	prolog("mitgcm", NULL, "the profile");
	prolog("mitgcm@3", NULL, "the version");
	prolog("lammps",
	       "error: kernel-broker: gate: job 7 refused: wanted lammps, node "
	       "runs mitgcm@3 (" SANDBOX_RELEASE "), because it is another "
	       "profile\n",
	       "another profile");
	prolog(NULL,
	       "error: kernel-broker: gate: job 7 refused: wanted stock, node "
	       "runs mitgcm@3 (" SANDBOX_RELEASE "), because the node has not "
	       "gone back to stock\n",
	       "a plain job");
	prolog("stock", "wanted stock", "stock");
	prolog("Junk!", "SPANK_KERNEL_PROFILE is no profile's name", "junk");
	prolog("", "wanted stock", "nothing is what a plain job says");
	sandbox_remove("node.state");
	prolog("mitgcm", "(no node.state)", "no state");
	prolog(NULL, "it is not proven", "plain, no state, a token");
	sandbox_write("proc/cmdline", "quiet\n");
	prolog(NULL, NULL, "plain, no state, no token");
	sandbox_state("stock", 1, "", 1);
	prolog(NULL, NULL, "plain on stock");
	prolog("stock", NULL, "stock on stock");
	prolog("", NULL, "nothing on stock");
}

/*
 * Slurm's own variable for the option, which a user may set to anything: the
 * broker's hook does not read it, so the gate must not either.
 */
static void test_option_variable_says_nothing(void)
{
	static const struct {
		const char *control, *option;
		bool profile_node, pass;
	} cases[] = {
		{ "mitgcm", "mitgcm", true, true },
		{ "mitgcm", "lammps", true, true },
		{ "mitgcm", "Junk!", true, true },
		{ "mitgcm", "stock", true, true },
		{ "lammps", "mitgcm", true, false },
		{ NULL, "mitgcm", true, false },
		{ NULL, "mitgcm", false, true },
		{ NULL, "Junk!", false, true },
		{ NULL, "", false, true },
		{ "", "mitgcm", false, true },
		{ "stock", "mitgcm", false, true },
		{ "stock@2", "mitgcm", false, true },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		sandbox_state(cases[i].profile_node ? "mitgcm" : "stock", 3,
			      cases[i].profile_node ? "7" : "", 1);
		fake_reset(S_CTX_JOB_SCRIPT);
		fake_job_id = 7;
		if (cases[i].control)
			setenv("SPANK_KERNEL_PROFILE", cases[i].control, 1);
		fake_set_prolog_option(cases[i].option);
		is_int(slurm_spank_job_prolog(fake_sp, argc, argv),
		       cases[i].pass ? 0 : -1, "control %s, option %s",
		       cases[i].control ? cases[i].control : "-",
		       cases[i].option);
		if (!cases[i].pass)
			has_text(fake_log, "refused", "and that is logged");
	}
}

static void test_prolog_without_id(void)
{
	fake_reset(S_CTX_JOB_SCRIPT);
	fake_item_rc = ESPANK_NOT_AVAIL;
	is_int(slurm_spank_job_prolog(fake_sp, argc, argv), -1, "no job id");
	has_text(fake_log, "does not tell the job's id", "is an error");
}

static void begin_remote(uint32_t job)
{
	fake_reset(S_CTX_REMOTE);
	fake_job_id = job;
	is_int(slurm_spank_init(fake_sp, argc, argv), 0, "init");
	is_int(slurm_spank_init_post_opt(fake_sp, argc, argv), 0, "post_opt");
}

static void environment(const char *profile, const char *version,
			const char *what)
{
	begin_remote(7);
	fake_set_jobenv("KERNEL_BROKER_PROFILE", "left over");
	fake_set_jobenv("KERNEL_BROKER_VERSION", "left over");
	fake_set_jobenv("KERNEL_BROKER_RELEASE", "left over");
	fake_set_jobenv("KERNEL_BROKER_BUILD_ID", "left over");
	is_int(slurm_spank_user_init(fake_sp, argc, argv), 0, "user_init");
	is_text(fake_jobenv("KERNEL_BROKER_PROFILE"), profile, "%s: profile",
		what);
	is_text(fake_jobenv("KERNEL_BROKER_VERSION"), version, "%s: version",
		what);
	is_text(fake_jobenv("KERNEL_BROKER_RELEASE"),
		profile ? SANDBOX_RELEASE : NULL, "%s: release", what);
	is_text(fake_jobenv("KERNEL_BROKER_BUILD_ID"),
		profile ? SANDBOX_BUILD_ID : NULL, "%s: build id", what);
}

static void test_environment(void)
{
	sandbox_node("quiet\n");
	sandbox_state("mitgcm", 3, "7", 1);
	environment("mitgcm", "3", "a profile");
	sandbox_state("stock", 1, "", 1);
	environment("stock", "1", "stock");
	sandbox_write("proc/sys/kernel/random/boot_id",
		      "00000000-0000-0000-0000-000000000000\n");
	environment(NULL, NULL, "an old claim");
	sandbox_node("quiet\n");
	sandbox_write("sys/kernel/notes", "");
	environment(NULL, NULL, "a false claim");
	sandbox_node("quiet\n");
	sandbox_remove("node.state");
	environment(NULL, NULL, "no claim");
	sandbox_state("mitgcm", 3, "7", 1);
	begin_remote(7);
	fake_setenv_rc = ESPANK_BAD_ARG;
	is_int(slurm_spank_user_init(fake_sp, argc, argv), 0,
	       "a failure drains no node");
	has_text(fake_log, "error: kernel_profile: KERNEL_BROKER_PROFILE",
		 "but is logged");
}

static void task(uint32_t job, const char *step, const char *want,
		 const char *what)
{
	begin_remote(job);
	if (step)
		fake_set_jobenv("SLURM_KERNEL_PROFILE_STEP", step);
	is_int(slurm_spank_task_init(fake_sp, argc, argv), want ? -1 : 0,
	       "%s: %s", what, want ? "refused" : "passes");
	is_text(fake_jobenv("SLURM_KERNEL_PROFILE_STEP"), NULL,
		"%s: the step's ref is taken away", what);
	if (want)
		has_text(fake_log, want, "%s: the reason", what);
	else
		is_text(fake_log, "", "%s: nothing is said", what);
}

static void test_task(void)
{
	sandbox_node("quiet " SANDBOX_TOKEN "\n");
	sandbox_state("mitgcm", 3, "7", 1);
	task(7, NULL, NULL, "the job's kernel");
	task(8, NULL,
	     "user: kernel-broker: job 8: task refused: node runs "
	     "mitgcm@3 (" SANDBOX_RELEASE "), because the node was "
	     "prepared for job 7, this is job 8\n",
	     "another job's kernel");
	task(7, "mitgcm", NULL, "the step agrees");
	task(7, "mitgcm@3", NULL, "the step knows the version");
	task(7, "mitgcm@2", "the step asks for mitgcm@2", "another version");
	task(7, "stock", "the step asks for stock", "a step on stock");
	task(7, "Junk!", NULL, "a step's junk is nobody's ref");
	sandbox_state("mitgcm", 3, "7", 0);
	task(7, NULL, "not attested", "not attested any more");
	sandbox_state("stock", 1, "", 1);
	task(7, NULL, NULL, "stock");
	task(7, "stock", NULL, "a step on stock, on stock");
	task(7, "mitgcm", "the step asks for mitgcm", "a profile on stock");
	sandbox_remove("node.state");
	task(7, NULL, "it is not proven", "no state, a token");
	sandbox_write("proc/cmdline", "quiet\n");
	task(7, NULL, NULL, "no state, no token");
	task(7, "stock", NULL, "stock without a state");
	task(7, "mitgcm", "the step asks for mitgcm",
	     "a profile without a state");
	sandbox_state("mitgcm", 3, "7", 1);
	sandbox_write("proc/sys/kernel/random/boot_id",
		      "00000000-0000-0000-0000-000000000000\n");
	task(7, NULL, NULL, "an old claim on the firmware's kernel");
	begin_remote(7);
	fake_item_rc = ESPANK_NOT_AVAIL;
	is_int(slurm_spank_task_init(fake_sp, argc, argv), -1, "no job id");
	sandbox_node("quiet\n");
}

static void step_of(uint32_t job, const char *word, const char *want,
		    const char *what)
{
	begin_remote(job);
	if (word)
		fake_set_jobenv("SLURM_KERNEL_PROFILE_JOB", word);
	is_int(slurm_spank_task_init(fake_sp, argc, argv), want ? -1 : 0,
	       "%s: %s", what, want ? "refused" : "passes");
	is_text(fake_jobenv("SLURM_KERNEL_PROFILE_JOB"), NULL,
		"%s: srun's word is taken away", what);
	if (want)
		has_text(fake_log, want, "%s: the reason", what);
	else
		is_text(fake_log, "", "%s: nothing is said", what);
}

/* A node that was reset, or added to the job: stock is not good enough. */
static void test_step_of_a_profile_job_needs_its_kernel(void)
{
	sandbox_node("quiet\n");
	sandbox_state("stock", 1, "", 1);
	step_of(7, "7/mitgcm", "it is another profile", "a profile on stock");
	step_of(7, "7/mitgcm@3", "it is another profile", "a version on stock");
	step_of(7, NULL, NULL, "a plain job on stock");
	step_of(7, "7/stock", NULL, "a job that says stock");
	step_of(7, "8/mitgcm", NULL, "from within another job");
	step_of(7, "77/mitgcm", NULL, "a longer number");
	step_of(7, "7mitgcm", NULL, "junk");
	step_of(7, "/mitgcm", NULL, "no number");
	step_of(7, "7/Junk!", NULL, "no name");
	sandbox_remove("node.state");
	step_of(7, "7/mitgcm", "(no node.state)", "on nobody knows what");
	sandbox_node("quiet " SANDBOX_TOKEN "\n");
	sandbox_state("mitgcm", 3, "7", 1);
	step_of(7, "7/mitgcm", NULL, "on its kernel");
	step_of(7, "7/mitgcm@3", NULL, "on its version");
	step_of(7, "7/mitgcm@2", "another version", "on another version");
	step_of(7, "7/lammps", "another profile", "on another profile");
	step_of(8, "8/mitgcm", "prepared for job 7, this is job 8",
		"on a node that was prepared for another job");
}

/* What the broker knows needs no word of the step. */
static void test_node_that_lost_the_jobs_kernel(void)
{
	static const char *const words[] = { NULL, "7/mitgcm", "7/stock" };

	sandbox_node("quiet\n");
	sandbox_state("stock", 1, "", 1);
	sandbox_lost("6,7");
	for (size_t i = 0; i < 3; i++)
		step_of(7, words[i],
			"user: kernel-broker: job 7: task refused: node runs "
			"stock@1 (" SANDBOX_RELEASE "), because the node was "
			"booted while the job was on it and has lost the "
			"job's kernel\n",
			"a job that the node failed");
	step_of(8, NULL, NULL, "another job");
	prolog("mitgcm", "has lost the job's kernel", "its prolog");
	prolog(NULL, "has lost the job's kernel", "its prolog, silent");
	sandbox_write("proc/sys/kernel/random/boot_id",
		      "00000000-0000-0000-0000-000000000000\n");
	step_of(7, NULL, NULL, "the word of an older boot");
	sandbox_node("quiet\n");
}

/* srun forwards its option to the node by a way that mixes components up. */
static void test_remote_option(void)
{
	sandbox_state("mitgcm", 3, "7", 1);
	begin_remote(7);
	is_int(fake_use_option("lammps"), 0, "a forwarded option");
	is_int(fake_use_option("Junk!"), 0, "whatever it says");
	is_int(slurm_spank_task_init(fake_sp, argc, argv), 0, "is ignored");
}

static void parsed(const char *cmdline, const char *want)
{
	char got[CPU_SETSIZE + 1] = "";
	size_t end = 0;
	cpu_set_t cpus;
	bool known = cores_parse(cmdline, &cpus);

	for (size_t cpu = 0; known && cpu < CPU_SETSIZE; cpu++) {
		got[cpu] = CPU_ISSET(cpu, &cpus) ? '1' : '0';
		if (got[cpu] == '1')
			end = cpu + 1;
	}
	got[end] = '\0';
	is_text(known ? got : NULL, want, "the system's CPUs of: %s", cmdline);
}

static void test_parse_system_cpus(void)
{
	parsed("quiet kernelbroker.system_cpus=0\n", "1");
	parsed("kernelbroker.system_cpus=0,2-3 quiet", "1011");
	parsed("kernelbroker.system_cpus=1-1", "01");
	parsed("kernelbroker.system_cpus=0 kernelbroker.system_cpus=1", "01");
	parsed("", NULL);
	parsed("quiet irqaffinity=0", NULL);
	parsed("xkernelbroker.system_cpus=0", NULL);
	parsed("a=\"b kernelbroker.system_cpus=0\"", NULL);
	parsed("kernelbroker.system_cpus=", NULL);
	parsed("kernelbroker.system_cpus=,", NULL);
	parsed("kernelbroker.system_cpus=0,", NULL);
	parsed("kernelbroker.system_cpus=2-1", NULL);
	parsed("kernelbroker.system_cpus=0-", NULL);
	parsed("kernelbroker.system_cpus=-1", NULL);
	parsed("kernelbroker.system_cpus=0x1", NULL);
	parsed("kernelbroker.system_cpus=1024", NULL);
	parsed("kernelbroker.system_cpus=99999999999999999999", NULL);
}

/* The CPUs of a task that begins with those of bound, on such a node. */
static void placed(const cpu_set_t *bound, const cpu_set_t *want,
		   const char *what)
{
	cpu_set_t got;

	is_int(sched_setaffinity(0, sizeof(*bound), bound), 0, "%s: bound",
	       what);
	task(7, NULL, NULL, what);
	is_int(sched_getaffinity(0, sizeof(got), &got), 0, "%s: read", what);
	is_int(CPU_EQUAL(&got, want), 1, "%s: its CPUs", what);
}

/* slurmd runs on the system's CPUs; a task must not inherit that. */
static void test_task_leaves_the_systems_cpus(void)
{
	char line[128];
	cpu_set_t all, first, others;
	size_t cpu = 0;

	sched_getaffinity(0, sizeof(all), &all);
	if (CPU_COUNT(&all) < 2) {
		is_int(1, 1, "one CPU has no others # SKIP");
		return;
	}
	while (!CPU_ISSET(cpu, &all))
		cpu++;
	CPU_ZERO(&first);
	CPU_SET(cpu, &first);
	CPU_XOR(&others, &all, &first);
	snprintf(line, sizeof(line),
		 "quiet " SANDBOX_TOKEN " kernelbroker.system_cpus=%zu\n", cpu);
	sandbox_node(line);
	sandbox_state("mitgcm", 3, "7", 1);
	placed(&first, &others, "not bound, started by slurmd");
	placed(&all, &others, "bound to all CPUs");
	placed(&others, &others, "bound to the application's CPUs");
	sandbox_node("quiet " SANDBOX_TOKEN
		     " kernelbroker.system_cpus=0-1023\n");
	is_int(sched_setaffinity(0, sizeof(all), &all), 0, "all again");
	begin_remote(7);
	is_int(slurm_spank_task_init(fake_sp, argc, argv), 0,
	       "no CPU is left, and the task still runs");
	has_text(fake_log, "stays on the system's CPUs", "which is logged");
	sandbox_node("quiet " SANDBOX_TOKEN "\n");
	placed(&first, &first, "a kernel without system cores");
	sched_setaffinity(0, sizeof(all), &all);
}

int main(void)
{
	sandbox_make();
	argc = sandbox_args(&argv);
	test_prolog();
	test_option_variable_says_nothing();
	test_prolog_without_id();
	test_environment();
	test_task();
	test_step_of_a_profile_job_needs_its_kernel();
	test_node_that_lost_the_jobs_kernel();
	test_remote_option();
	test_parse_system_cpus();
	test_task_leaves_the_systems_cpus();
	fake_reset(S_CTX_ERROR);
	return tap_end();
}
