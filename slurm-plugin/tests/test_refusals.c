/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
/* The file by which the broker knows a drain that the gate brought about. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fake_spank.h"
#include "node/refusals.h"
#include "sandbox.h"
#include "common/readfile.h"
#include "tap.h"

static int argc;
static char **argv;

static int add(uint32_t job, const char *cause)
{
	const struct refusal r = { .boot_id = SANDBOX_BOOT_ID,
				   .time = 1790000000,
				   .job = job,
				   .cause = cause };

	return refusals_add(sandbox_path("node.state"), &r);
}

static char *content(void)
{
	char *text;
	size_t size;

	if (read_file(sandbox_path("gate.refusals"), 1 << 16, &text, &size))
		return strdup("(none)");
	return text;
}

static int lines(const char *text)
{
	int n = 0;

	for (; *text; text++)
		n += *text == '\n';
	return n;
}

static void holds(const char *want, const char *what)
{
	char *text = content();

	is_text(text, want, "%s", what);
	free(text);
}

#define FIRST \
	"boot_id=" SANDBOX_BOOT_ID " time=1790000000 job=7 cause=one reason\n"

static void test_lines(void)
{
	char *text;

	sandbox_remove("gate.refusals");
	is_int(add(7, "one reason"), 0, "a first refusal");
	holds(FIRST, "is one line");
	is_int(add(8, "line\nbreak \001 caf\303\251"), 0, "odd letters");
	holds(FIRST "boot_id=" SANDBOX_BOOT_ID
		    " time=1790000000 job=8 cause=line?break ? caf??\n",
	      "make no lines of their own");
	for (uint32_t job = 9; job < 30; job++)
		is_int(add(job, "again"), 0, "job %u", job);
	text = content();
	is_int(lines(text), REFUSALS_MAX, "the newest are kept");
	has_text(text, "job=29 cause", "with the last");
	ok(!strstr(text, "job=21 cause") && strstr(text, "job=22 cause"),
	   "without the older ones");
	free(text);
}

static void test_long_causes_stay_bounded(void)
{
	char cause[4096];
	char *text;
	struct stat st;

	memset(cause, 'x', sizeof(cause) - 1);
	cause[sizeof(cause) - 1] = '\0';
	for (int i = 0; i < 2 * REFUSALS_MAX; i++)
		is_int(add(4294967295U, cause), 0, "a long cause");
	text = content();
	is_int(lines(text), REFUSALS_MAX, "all are whole");
	ok(strlen(text) < 4096, "the file is small");
	free(text);
	is_int(stat(sandbox_path("gate.refusals"), &st), 0, "it is there");
	is_int(st.st_mode & 0777, 0644, "and only ours to write");
}

/* What somebody left there is neither followed nor believed. */
static void test_odd_files(void)
{
	char *path = strdup(sandbox_path("gate.refusals"));
	struct stat st;

	sandbox_write("elsewhere", "mine\n");
	sandbox_remove("gate.refusals");
	is_int(symlink(sandbox_path("elsewhere"), path), 0, "a link");
	free(path);
	is_int(add(7, "one reason"), 0, "is replaced");
	is_int(lstat(sandbox_path("gate.refusals"), &st), 0, "there is");
	ok(S_ISREG(st.st_mode), "a file instead");
	holds(FIRST, "of one line");
	sandbox_remove("gate.refusals");
	is_int(mkfifo(sandbox_path("gate.refusals"), 0600), 0, "a fifo");
	is_int(add(7, "one reason"), 0, "does not hang us");
	holds(FIRST, "and is replaced");
	sandbox_write("gate.refusals", FIRST "boot_id=half a li");
	is_int(add(7, "one reason"), 0, "half a line");
	holds(FIRST FIRST, "is dropped");
	sandbox_write(".gate.refusals.new", "left over");
	is_int(add(7, "one reason"), 0, "a file that was left over");
	ok(access(sandbox_path(".gate.refusals.new"), F_OK) < 0, "is gone");
	is_int(refusals_add("relative", &(struct refusal){ .cause = "" }),
	       EINVAL, "no folder");
	is_int(refusals_add("/nowhere/node.state",
			    &(struct refusal){ .cause = "" }),
	       ENOENT, "a folder that is not there");
}

static void test_folder_of_others(void)
{
	char *folder = strdup(sandbox_path("."));

	sandbox_remove("gate.refusals");
	is_int(chmod(folder, 0777), 0, "a folder that anybody can write to");
	is_int(add(7, "one reason"), EPERM, "is not written to");
	is_int(chmod(folder, 0700), 0, "its own");
	is_int(add(7, "one reason"), 0, "is");
	free(folder);
}

static void test_at_once(void)
{
	pid_t child[6];
	char *text;

	sandbox_remove("gate.refusals");
	for (int i = 0; i < 6; i++) {
		child[i] = fork();
		if (child[i] == 0)
			_exit(add((uint32_t)i + 1, "at once"));
	}
	for (int i = 0; i < 6; i++) {
		int status = 1;

		waitpid(child[i], &status, 0);
		is_int(status, 0, "prolog %d", i + 1);
	}
	text = content();
	is_int(lines(text), 6, "several prologs lose nothing");
	free(text);
}

/* Any user can lock what he can read, the folder among it. */
static void test_locks_of_users(void)
{
	int folder = open(sandbox_path("."), O_RDONLY | O_DIRECTORY);
	struct stat st;

	sandbox_remove("gate.refusals");
	is_int(flock(folder, LOCK_EX | LOCK_NB), 0, "a lock on the folder");
	is_int(add(7, "one reason"), 0, "suppresses nothing");
	holds(FIRST, "of what is noted");
	close(folder);
	is_int(stat(sandbox_path(".gate.refusals.lock"), &st), 0, "the lock");
	is_int(st.st_mode & 0777, 0600, "is read by nobody else");
}

/* What somebody left in the lock's place is not locked. */
static void test_odd_lock(void)
{
	char *path = strdup(sandbox_path(".gate.refusals.lock"));

	sandbox_remove(".gate.refusals.lock");
	sandbox_write("elsewhere", "mine\n");
	is_int(symlink(sandbox_path("elsewhere"), path), 0, "a link");
	is_int(add(7, "one reason"), ELOOP, "is not followed");
	sandbox_remove(".gate.refusals.lock");
	is_int(mkfifo(path, 0600), 0, "a fifo");
	is_int(add(7, "one reason"), EPERM, "is no lock");
	sandbox_remove(".gate.refusals.lock");
	is_int(add(7, "one reason"), 0, "without them");
	free(path);
}

static void test_gate_leaves_it(void)
{
	char *text;

	sandbox_node("quiet\n");
	sandbox_state("stock", 1, "", 1);
	sandbox_remove("gate.refusals");
	fake_reset(S_CTX_JOB_SCRIPT);
	fake_job_id = 7;
	is_int(slurm_spank_job_prolog(fake_sp, argc, argv), 0, "one passes");
	holds("(none)", "and leaves nothing");
	fake_reset(S_CTX_JOB_SCRIPT);
	fake_job_id = 7;
	setenv("SPANK_KERNEL_PROFILE", "mitgcm", 1);
	is_int(slurm_spank_job_prolog(fake_sp, argc, argv), -1, "one does not");
	text = content();
	has_text(text, " job=7 cause=wanted mitgcm, node runs stock@1 (",
		 "and leaves why");
	free(text);
	/* Who cannot leave it refuses all the same. */
	sandbox_remove("gate.refusals");
	is_int(mkdir(sandbox_path("gate.refusals"), 0700), 0, "a folder");
	fake_reset(S_CTX_JOB_SCRIPT);
	fake_job_id = 7;
	setenv("SPANK_KERNEL_PROFILE", "mitgcm", 1);
	is_int(slurm_spank_job_prolog(fake_sp, argc, argv), -1, "in its place");
	has_text(fake_log, "the refusal cannot be noted", "is logged");
	rmdir(sandbox_path("gate.refusals"));
}

int main(void)
{
	sandbox_make();
	argc = sandbox_args(&argv);
	test_lines();
	test_long_causes_stay_bounded();
	test_odd_files();
	test_folder_of_others();
	test_at_once();
	test_locks_of_users();
	test_odd_lock();
	test_gate_leaves_it();
	fake_reset(S_CTX_ERROR);
	return tap_end();
}
