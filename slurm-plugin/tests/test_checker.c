/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "submit/checker.h"
#include "sandbox.h"
#include "tap.h"

static char reason[CHECKER_REASON_SIZE];

static enum checker_answer run(const char *script)
{
	sandbox_program("kernelctl", script);
	return checker_ask(sandbox_path("kernelctl"), "mitgcm@3", false,
			   reason);
}

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void test_answers(void)
{
	is_int(run("#!/bin/sh\nexit 0\n"), CHECKER_ACCEPTED, "exit 0");
	is_int(run("#!/bin/sh\necho no >&2\nexit 3\n"), CHECKER_REFUSED,
	       "exit 3");
	is_text(reason, "no", "its reason");
	is_int(run("#!/bin/sh\nexit 3\n"), CHECKER_REFUSED, "exit 3, silent");
	is_text(reason, "", "no reason");
	is_int(run("#!/bin/sh\nexit 1\n"), CHECKER_UNKNOWN, "exit 1");
	is_text(reason, "kernelctl ended with exit code 1", "the code");
	is_int(run("#!/bin/sh\necho gone >&2\nexit 1\n"), CHECKER_UNKNOWN,
	       "exit 1 with a word");
	is_text(reason, "gone", "the word");
	is_int(run("#!/bin/sh\nkill -9 $$\n"), CHECKER_UNKNOWN, "killed");
	has_text(reason, "killed by signal 9", "by which signal");
	is_int(run("not a program"), CHECKER_UNKNOWN, "no program");
	has_text(reason, "127", "could not be run");
	sandbox_remove("kernelctl");
	is_int(checker_ask(sandbox_path("kernelctl"), "x", false, reason),
	       CHECKER_UNKNOWN, "no file");
	has_text(reason, "No such file", "why");
}

static void test_what_it_gets(void)
{
	/* Exactly these words, no shell, no files, nothing on stdin. */
	is_int(run("#!/bin/sh\n"
		   "[ $# = 3 ] && [ \"$1 $2 $3\" = 'profile check mitgcm@3' ]"
		   " || exit 1\n"
		   "[ -z \"$(cat)\" ] || exit 1\n"
		   "echo to stdout\n"
		   "for f in /proc/$$/fd/*; do\n"
		   "	case ${f##*/} in 0|1|2|10|255) ;; *) "
		   "[ -e $f ] && { echo $f open >&2; exit 1; } ;; esac\n"
		   "done\n"
		   "exit 0\n"),
	       CHECKER_ACCEPTED, "arguments and files");
	if (*reason)
		printf("# %s\n", reason);
}

static void test_open_files(void)
{
	int many[20];

	for (int i = 0; i < 20; i++)
		many[i] = open("/dev/null", O_RDONLY);
	test_what_it_gets();
	for (int i = 0; i < 20; i++)
		close(many[i]);
}

static void test_closed_standard_files(void)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		close(0);
		close(1);
		close(2);
		_exit(run("#!/bin/sh\necho no >&2\nexit 3\n") ==
					      CHECKER_REFUSED &&
				      strcmp(reason, "no") == 0 ?
			      0 :
			      1);
	}
	waitpid(pid, &status, 0);
	is_int(status, 0, "a caller without standard files");
}

static void test_time(void)
{
	double before = seconds(), took;

	is_int(run("#!/bin/sh\necho wait >&2\nexec sleep 60\n"),
	       CHECKER_UNKNOWN, "one that hangs");
	took = seconds() - before;
	/* Far below what the programs last, far above what a busy machine adds. */
	ok(took > 1.9 && took < 15, "is given 2 s (%.1f)", took);
	has_text(reason, "did not answer within 2 s", "and that is said");
	before = seconds();
	is_int(run("#!/bin/sh\ntrap '' TERM INT\n"
		   "cat /dev/zero >&2 &\ncat /dev/zero >&2 &\n"
		   "cat /dev/zero >&2\n"),
	       CHECKER_UNKNOWN, "one that never stops writing");
	took = seconds() - before;
	ok(took < 15, "is given no more (%.1f)", took);
	before = seconds();
	is_int(run("#!/bin/sh\nsleep 30 &\necho no >&2\nexit 3\n"),
	       CHECKER_REFUSED, "one whose child keeps stderr open");
	took = seconds() - before;
	ok(took < 15, "is not waited for (%.1f)", took);
	is_text(reason, "no", "and its reason is there");
	is_int(waitpid(-1, NULL, WNOHANG), -1, "no child is left");
}

static void test_output(void)
{
	is_int(run("#!/bin/sh\nprintf '  two\\n\\nlines\\twith\\033[31m odd "
		   "bytes\\r\\n\\n' >&2\nexit 3\n"),
	       CHECKER_REFUSED, "odd output");
	is_text(reason, "two lines with[31m odd bytes", "one clean line");
	is_int(run("#!/bin/sh\nhead -c 200000 /dev/zero | tr '\\0' x >&2\n"
		   "exit 3\n"),
	       CHECKER_REFUSED, "a flood");
	is_int(strlen(reason), CHECKER_REASON_SIZE - 1, "is cut");
	is_int(run("#!/bin/sh\nhead -c 200000 /dev/zero | tr '\\0' x >&2\n"
		   "exit 1\n"),
	       CHECKER_UNKNOWN, "a flood and a failure");
	ok(strlen(reason) <= CHECKER_REASON_SIZE - 1, "is cut too");
}

static void test_signals(void)
{
	sigset_t all, old;

	/* srun calls with its signals blocked, others with SIGPIPE ignored. */
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, &old);
	/* Not a shell: a shell unblocks its signals itself. */
	is_int(run("#!/usr/bin/perl\nopen F, '/proc/self/status';\n"
		   "exit((grep /^SigBlk:\\s*0*[1-9a-f]/, <F>) ? 1 : 0);\n"),
	       CHECKER_ACCEPTED, "the program has no signals blocked");
	if (*reason)
		printf("# %s\n", reason);
	sigprocmask(SIG_SETMASK, &old, NULL);
	signal(SIGCHLD, SIG_IGN);
	is_int(run("#!/bin/sh\nexit 3\n"), CHECKER_UNKNOWN,
	       "a caller that ignores its children learns nothing");
	has_text(reason, "could not be seen", "and that is said");
	signal(SIGCHLD, SIG_DFL);
}

int main(void)
{
	sandbox_make();
	test_answers();
	test_open_files();
	test_closed_standard_files();
	test_time();
	test_output();
	test_signals();
	return tap_end();
}
