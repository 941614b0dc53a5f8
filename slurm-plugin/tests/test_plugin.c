/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
/* The switchboard and the plugin's arguments, in every context. */
#include "fake_spank.h"
#include "sandbox.h"
#include "common/settings.h"
#include "tap.h"

extern const char plugin_name[], plugin_type[];
extern const unsigned int plugin_version, spank_plugin_version;

static void test_identity(void)
{
	/* Slurm makes environment variables of this name: see names.h. */
	is_text(plugin_name, "kernel_profile", "name");
	is_text(plugin_type, "spank", "type");
	is_int(plugin_version, SLURM_VERSION_NUMBER, "version");
	is_int(spank_plugin_version, 1, "our version");
}

static void test_settings(void)
{
	char good[] = "snapshot=/a", again[] = "snapshot=/b", sys[] = "sys=/s";
	char *fine[] = { good, sys, again };
	char relative[] = "snapshot=a", empty[] = "proc=";
	char unknown[] = "snapshots=/a", word[] = "word", half[] = "snap=/a";
	char *bad[] = { relative, empty, unknown, word, half };
	struct settings s;

	fake_reset(S_CTX_ALLOCATOR);
	is_int(settings_parse(0, NULL, &s), 0, "no arguments");
	is_text(s.snapshot, "/var/lib/kernel-broker/catalog.snapshot", "1");
	is_text(s.kernelctl, "/usr/bin/kernelctl", "2");
	is_text(s.node_state, "/run/kernel-broker/node.state", "3");
	is_text(s.proc, "/proc", "4");
	is_text(s.sys, "/sys", "5");
	is_int(settings_parse(3, fine, &s), 0, "good arguments");
	is_text(s.snapshot, "/b", "the last one counts");
	is_text(s.sys, "/s", "another");
	is_text(fake_log, "", "nothing is said");
	for (int i = 0; i < 5; i++) {
		fake_reset(S_CTX_ALLOCATOR);
		is_int(settings_parse(1, &bad[i], &s), -1, "%s", bad[i]);
		has_text(fake_log, bad[i], "is named");
		is_text(s.proc, "/proc", "and the defaults hold");
	}
}

static void test_bad_argument(enum spank_context context, int init_rc)
{
	char bad[] = "typo=/a";
	char *args[] = { bad };

	fake_reset(context);
	is_int(slurm_spank_init(fake_sp, 1, args), init_rc,
	       "context %d, a bad argument", (int)context);
	has_text(fake_log, "typo=/a", "is logged");
}

/* Functions that Slurm calls in contexts where there is nothing to do. */
static void test_nothing_to_do(enum spank_context context)
{
	char **argv;
	int argc = sandbox_args(&argv);

	fake_reset(context);
	is_int(slurm_spank_init(fake_sp, argc, argv), 0, "context %d: init",
	       (int)context);
	is_int(slurm_spank_init_post_opt(fake_sp, argc, argv), 0, "post_opt");
	is_int(slurm_spank_user_init(fake_sp, argc, argv), 0, "user_init");
	is_int(slurm_spank_task_init(fake_sp, argc, argv), 0, "task_init");
	ok(!fake_option(), "no option is registered");
	is_text(fake_log, "", "nothing is said");
}

/* slurmd starts strict, a running node's gate does not drain for a typo. */
static void test_gate_with_typo(void)
{
	char typo[] = "typo=/a";
	char *args[7];
	char **argv;
	int argc = sandbox_args(&argv);

	for (int i = 0; i < argc; i++)
		args[i] = argv[i];
	args[argc] = typo;
	sandbox_node("quiet\n");
	sandbox_state("stock", 1, "", 1);
	fake_reset(S_CTX_JOB_SCRIPT);
	is_int(slurm_spank_job_prolog(fake_sp, argc + 1, args), 0,
	       "the gate works with a typo");
	has_text(fake_log, "typo=/a", "which is logged");
}

int main(void)
{
	sandbox_make();
	test_identity();
	test_settings();
	test_bad_argument(S_CTX_ALLOCATOR, -1);
	test_bad_argument(S_CTX_LOCAL, -1);
	test_bad_argument(S_CTX_SLURMD, -1);
	test_bad_argument(S_CTX_REMOTE, 0);
	test_nothing_to_do(S_CTX_SLURMD);
	test_nothing_to_do(S_CTX_JOB_SCRIPT);
	test_nothing_to_do(S_CTX_ERROR);
	test_gate_with_typo();
	fake_reset(S_CTX_ERROR);
	return tap_end();
}
