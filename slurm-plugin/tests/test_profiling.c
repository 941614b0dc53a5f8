/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
/* --kernel-profiling: its list, and what sbatch, salloc and srun make of it. */
#include <stdlib.h>

#include "submit/collectors.h"
#include "fake_spank.h"
#include "submit/profiling.h"
#include "sandbox.h"
#include "tap.h"

#define OPTION_ENV "_SLURM_SPANK_OPTION_kernel_profile_kernel_profiling"
#define PROFILE_ENV "_SLURM_SPANK_OPTION_kernel_profile_kernel_profile"

static int argc;
static char **argv;

static void test_lists(void)
{
	static const struct {
		const char *text;
		const char *want;
	} cases[] = {
		{ NULL, "io,syscalls,noise" },
		{ "default", "io,syscalls,noise" },
		{ "all", "io,syscalls,callgraph,noise,pgo" },
		{ "callcounts,io", "io,callcounts" },
		{ "pgo,callcounts,callgraph,syscalls,noise,io",
		  "io,syscalls,callgraph,noise,pgo,callcounts" },
		{ "io", "io" },
		{ "noise,io", "io,noise" },
		{ "io,io", "io" },
		{ "pgo,callgraph,syscalls,noise,io",
		  "io,syscalls,callgraph,noise,pgo" },
	};
	static const struct {
		const char *text;
		const char *bad;
	} wrong[] = {
		{ "x", "x" },        { "io,", "" },       { ",io", ",io" },
		{ "io,x,y", "x,y" }, { "IO", "IO" },      { " io", " io" },
		{ "i", "i" },        { "io,all", "all" }, { "iox", "iox" },
		{ "", "" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char text[COLLECTORS_TEXT_SIZE];
		const char *bad;
		unsigned int set = 0;
		size_t length;

		ok(collectors_parse(cases[i].text, &set, &bad, &length),
		   "%s is good", cases[i].text ? cases[i].text : "nothing");
		collectors_format(set, text);
		is_text(text, cases[i].want, "written out");
	}
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		const char *bad = NULL;
		unsigned int set = 77;
		size_t length = 99;

		ok(!collectors_parse(wrong[i].text, &set, &bad, &length),
		   "%s is bad", wrong[i].text);
		is_text(bad, wrong[i].bad, "and where");
		ok(length <= strlen(bad), "and how long");
	}
}

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

static void exports(const char *profile, const char *collectors)
{
	is_text(fake_control("KERNEL_PROFILE"), profile, "the profile");
	is_text(fake_control("KERNEL_PROFILING"), collectors, "the collectors");
	is_text(fake_control(OPTION_ENV), NULL, "no second channel");
	is_text(getenv(OPTION_ENV), NULL, "nor a third");
	is_text(getenv("SLURM_SPANK_" OPTION_ENV), NULL, "nor a fourth");
}

static void test_register(void)
{
	begin(S_CTX_ALLOCATOR);
	is_text(fake_profiling_option()->name, "kernel-profiling", "name");
	is_int(fake_profiling_option()->has_arg, 2, "a list may be given");
	begin(S_CTX_REMOTE);
	ok(fake_profiling_option() != NULL, "nodes know the option");
	is_int(fake_use_profiling("junk"), 0, "and do not judge it");
}

static void test_accepted(enum spank_context context)
{
	begin(context);
	is_int(fake_use_profiling(NULL), 0, "without a list");
	is_int(post_opt(), 0, "and its end");
	exports(NULL, "io,syscalls,noise");
	begin(context);
	is_int(fake_use_option("mitgcm"), 0, "a profile");
	is_int(fake_use_profiling("noise,io"), 0, "and a list");
	is_int(fake_use_profiling("io,noise"), 0, "twice the same");
	is_int(post_opt(), 0, "and their end");
	exports("mitgcm", "io,noise");
	is_text(fake_log, "", "nothing is said");
}

static void test_refused(void)
{
	begin(S_CTX_ALLOCATOR);
	is_int(fake_use_profiling(""), -1, "an empty list");
	has_text(fake_log,
		 "--kernel-profiling=: a list of collectors is "
		 "missing",
		 "is missing");
	begin(S_CTX_ALLOCATOR);
	is_int(fake_use_profiling("io,bogus"), -1, "an unknown name");
	has_text(fake_log, "there is no collector \"bogus\"", "is named");
	begin(S_CTX_ALLOCATOR);
	fake_use_profiling("io");
	is_int(fake_use_profiling("noise"), -1, "two lists");
	has_text(fake_log, "asks for io and for noise", "both are named");
}

/* The instrumented kernel is a profile of its own, and checked as one. */
static void test_pgo(void)
{
	begin(S_CTX_ALLOCATOR);
	fake_use_profiling("pgo,io");
	is_int(fake_use_option("mitgcm"), 0, "the option after it");
	is_int(post_opt(), 0, "pgo");
	exports("mitgcm-instrumented", "io,pgo");
	begin(S_CTX_ALLOCATOR);
	fake_use_profiling("pgo");
	is_int(post_opt(), 0, "pgo without a profile");
	exports("stock-instrumented", "pgo");
	begin(S_CTX_ALLOCATOR);
	fake_use_option("lammps");
	fake_use_profiling("pgo");
	is_int(post_opt(), -1, "a profile that has no such kernel");
	has_text(fake_log, "unknown kernel profile \"lammps-instrumented\"",
		 "is named");
	has_text(fake_log, "'kernelctl kernel build lammps --instrumented'",
		 "and what makes it");
	begin(S_CTX_ALLOCATOR);
	fake_use_option("mitgcm@3");
	fake_use_profiling("pgo");
	is_int(post_opt(), -1, "a version");
	has_text(fake_log, "write --kernel-profile=mitgcm instead of mitgcm@3",
		 "what to write");
	begin(S_CTX_ALLOCATOR);
	fake_use_option(
		"mitgcm-with-a-name-that-takes-more-than-fifty-letters");
	fake_use_profiling("pgo");
	is_int(post_opt(), -1, "a long name");
	has_text(fake_log, "is too long", "is too long");
}

/* Who begins with a profile that has no kernel yet has its instrumented one. */
static void test_first_kernel(void)
{
	begin(S_CTX_ALLOCATOR);
	is_int(fake_use_option("redis"), 0, "the profile first");
	is_int(fake_use_profiling("pgo"), 0, "then pgo");
	is_int(post_opt(), 0, "and their end");
	exports("redis-instrumented", "pgo");
	is_text(fake_log, "", "nothing is said");
	begin(S_CTX_LOCAL);
	is_int(fake_use_profiling("pgo"), 0, "pgo first");
	is_int(fake_use_option("redis"), 0, "then the profile");
	is_int(post_opt(), 0, "and their end");
	exports("redis-instrumented", "pgo");
	begin(S_CTX_ALLOCATOR);
	setenv("SLURM_SPANK_" PROFILE_ENV, "redis", 1);
	fake_use_profiling("pgo");
	is_int(fake_use_environment(), 0, "as a default");
	is_int(post_opt(), 0, "and its end");
	exports("redis-instrumented", "pgo");
	begin(S_CTX_ALLOCATOR);
	is_int(fake_use_option("redis"), 0, "what may go with pgo");
	fake_use_profiling("io");
	is_int(post_opt(), -1, "does not go without");
	has_text(fake_log, "unknown kernel profile \"redis\"", "and is named");
	is_text(fake_control("KERNEL_PROFILE"), NULL, "nothing is exported");
	begin(S_CTX_ALLOCATOR);
	fake_use_option("redis");
	fake_use_profiling("pgo");
	is_int(post_opt(), 0, "one component with pgo");
	fake_use_option("redis");
	is_int(post_opt(), -1, "does not help the next one");
	is_int(post_opt(), 0, "nor harm one that says nothing");
	exports(NULL, NULL);
	begin(S_CTX_ALLOCATOR);
	is_int(fake_use_option("redis@1"), -1, "a version has no twin");
	begin(S_CTX_ALLOCATOR);
	is_int(fake_use_option("zebra"), 0, "what is in no snapshot");
	is_int(post_opt(), -1, "the broker refuses");
	has_text(fake_log, "unknown kernel profile \"zebra\"", "and names it");
}

/*
 * A kernel may be younger than the snapshot, or there is none: the broker has
 * the last word, and is asked once it is known for what.
 */
static void test_broker_knows_more(void)
{
	sandbox_program(
		"kernelctl",
		"#!/bin/sh\n[ \"$3\" = young-instrumented ] && exit\n"
		"echo \"unknown kernel profile \\\"$3\\\"\" >&2\nexit 3\n");
	begin(S_CTX_ALLOCATOR);
	is_int(fake_use_option("young"), 0, "the profile first");
	fake_use_profiling("pgo");
	is_int(post_opt(), 0, "and pgo");
	exports("young-instrumented", "pgo");
	begin(S_CTX_ALLOCATOR);
	fake_use_option("young");
	is_int(post_opt(), -1, "without pgo");
	has_text(fake_log, "unknown kernel profile \"young\"", "it is refused");
}

/* Whether a kernel can be profiled is in no snapshot. */
static void test_kernel_without_types(void)
{
	sandbox_program("kernelctl",
			"#!/bin/sh\n[ \"$4\" = --profiling ] || exit 0\n"
			"echo \"kernel \\\"$3\\\" has no type information\" "
			">&2\nexit 3\n");
	begin(S_CTX_ALLOCATOR);
	is_int(fake_use_option("mitgcm"), 0, "the profile");
	is_int(fake_use_profiling("io"), 0, "and a collector");
	is_int(post_opt(), -1, "do not go together");
	has_text(fake_log, "kernel \"mitgcm\" has no type information",
		 "says the broker");
	is_text(fake_control("KERNEL_PROFILE"), NULL, "nothing is exported");
	begin(S_CTX_ALLOCATOR);
	is_int(fake_use_option("stock"), 0, "stock");
	is_int(fake_use_profiling("io"), 0, "and a collector");
	is_int(post_opt(), 0, "always go together");
	begin(S_CTX_ALLOCATOR);
	is_int(fake_use_option("mitgcm"), 0, "the profile alone");
	is_int(post_opt(), 0, "is not asked for");
	exports("mitgcm", NULL);
}

/* Nothing goes from component to component, nor from a job to another. */
static void test_not_inherited(void)
{
	begin(S_CTX_ALLOCATOR);
	fake_use_profiling("io");
	is_int(post_opt(), 0, "first component");
	exports(NULL, "io");
	is_int(post_opt(), 0, "second component");
	exports(NULL, NULL);
	begin(S_CTX_ALLOCATOR);
	setenv("SLURM_JOB_ID", "12", 1);
	setenv("SLURM_SPANK_KERNEL_PROFILING", "io", 1);
	setenv("SLURM_SPANK_" OPTION_ENV, "io", 1);
	is_int(fake_use_environment(), 0, "a job from within a profiled one");
	is_int(post_opt(), 0, "and its end");
	exports(NULL, NULL);
	is_text(getenv("SLURM_SPANK_KERNEL_PROFILING"), NULL, "is forgotten");
}

static void test_steps(void)
{
	begin(S_CTX_LOCAL);
	setenv("SLURM_JOB_ID", "12", 1);
	is_int(fake_use_profiling("io"), -1, "a step");
	has_text(fake_log, "job 12 has begun", "is too late");
	begin(S_CTX_LOCAL);
	setenv("SLURM_JOB_ID", "12", 1);
	is_int(post_opt(), 0, "a step that says nothing");
	exports(NULL, NULL);
}

static void test_control_fails(void)
{
	begin(S_CTX_ALLOCATOR);
	fake_control_rc = ESPANK_BAD_ARG;
	fake_use_profiling("io");
	is_int(post_opt(), -1, "collectors that cannot be handed on");
	has_text(fake_log, "the collectors cannot be handed to slurmctld",
		 "is an error");
}

int main(void)
{
	sandbox_make();
	argc = sandbox_args(&argv);
	sandbox_write("catalog.snapshot",
		      "kernel-broker-snapshot 1\n"
		      "generated 2026-11-20T10:00:00Z\n"
		      "profile mitgcm 3 1,2,3 available\n"
		      "profile mitgcm-instrumented 1 1 available\n"
		      "profile mitgcm-with-a-name-that-takes-more-than-fifty-"
		      "letters 1 1 available\n"
		      "profile stock-instrumented 1 1 available\n"
		      "profile redis-instrumented 1 1 available\n"
		      "profile lammps 1 1 available\n"
		      "end\n");
	sandbox_program("kernelctl",
			"#!/bin/sh\n[ \"$4\" ] && exit\n"
			"echo \"unknown kernel profile \\\"$3\\\"\""
			" >&2\nexit 3\n");
	test_lists();
	test_register();
	test_accepted(S_CTX_ALLOCATOR);
	test_accepted(S_CTX_LOCAL);
	test_refused();
	test_pgo();
	test_first_kernel();
	test_not_inherited();
	test_steps();
	test_control_fails();
	test_broker_knows_more();
	test_kernel_without_types();
	sandbox_remove("catalog.snapshot");
	test_broker_knows_more();
	fake_reset(S_CTX_ERROR);
	return tap_end();
}
