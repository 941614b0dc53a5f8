/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
#include "submit/checker.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define EXIT_REFUSED 3
#define POLL_MS 10

struct run {
	pid_t pid;
	int error; /* the child's stderr */
	long long deadline;
	size_t used;
	char *text; /* CHECKER_REASON_SIZE bytes */
};

static long long now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (long long)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* From here to execv only what is safe after fork in a threaded program. */
static void close_the_rest(void)
{
	struct rlimit limit;

#ifdef SYS_close_range
	if (syscall(SYS_close_range, 3U, ~0U, 0U) == 0)
		return;
#endif
	if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur > 65536)
		limit.rlim_cur = 65536;
	for (int fd = 3; fd < (int)limit.rlim_cur; fd++)
		close(fd);
}

static void run_child(int error, const char *program, const char *ref,
		      bool profiled)
{
	static char profile[] = "profile", check[] = "check";
	static char profiling[] = "--profiling";
	char *const argv[] = { (char *)program,
			       profile,
			       check,
			       (char *)ref,
			       profiled ? profiling : NULL,
			       NULL };
	struct sigaction dfl = { .sa_handler = SIG_DFL };
	sigset_t none;
	int null = open("/dev/null", O_RDWR);

	/* A caller with closed standard files has the pipe among them. */
	error = fcntl(error, F_DUPFD, 3);
	if (null < 0 || error < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 ||
	    dup2(error, 2) < 0)
		_exit(127);
	close_the_rest();
	/* srun blocks signals, and a handler of its own dies with execv. */
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	sigaction(SIGPIPE, &dfl, NULL);
	setpgid(0, 0);
	execv(program, argv);
	_exit(127);
}

static bool start(struct run *run, const char *program, const char *ref,
		  bool profiled)
{
	int fds[2];

	if (access(program, X_OK) < 0 || pipe2(fds, O_CLOEXEC) < 0) {
		snprintf(run->text, CHECKER_REASON_SIZE, "%.300s: %s", program,
			 strerror(errno));
		return false;
	}
	run->pid = fork();
	if (run->pid == 0)
		run_child(fds[1], program, ref, profiled);
	close(fds[1]);
	if (run->pid < 0) {
		snprintf(run->text, CHECKER_REASON_SIZE, "fork: %s",
			 strerror(errno));
		close(fds[0]);
		return false;
	}
	setpgid(run->pid, run->pid);
	fcntl(fds[0], F_SETFL, O_NONBLOCK);
	run->error = fds[0];
	run->deadline = now_ms() + CHECKER_TIMEOUT_MS;
	return true;
}

/*
 * Takes what has come; what does not fit is read and dropped. The number of
 * reads has a limit, so that an endless writer cannot keep us here.
 */
static void drain(struct run *run)
{
	char junk[4096];

	for (int i = 0; i < 64; i++) {
		size_t room = CHECKER_REASON_SIZE - 1 - run->used;
		ssize_t n =
			room ? read(run->error, run->text + run->used, room) :
			       read(run->error, junk, sizeof(junk));

		if (n <= 0)
			break;
		if (room)
			run->used += (size_t)n;
	}
	run->text[run->used] = '\0';
}

/*
 * The child's end is what counts, not the end of its stderr: a grandchild may
 * hold that open for ever.
 */
static bool wait_for_end(struct run *run, int *status)
{
	for (;;) {
		struct pollfd wait = { .fd = run->error, .events = POLLIN };
		pid_t pid = waitpid(run->pid, status, WNOHANG);

		if (pid == run->pid)
			return true;
		if (pid < 0 && errno != EINTR)
			return false;
		if (now_ms() >= run->deadline)
			return false;
		poll(&wait, 1, POLL_MS);
		if (wait.revents & POLLIN)
			drain(run);
		else if (wait.revents)
			poll(NULL, 0, POLL_MS);
	}
}

static void stop(const struct run *run)
{
	int status;

	kill(-run->pid, SIGKILL);
	kill(run->pid, SIGKILL);
	while (waitpid(run->pid, &status, 0) < 0 && errno == EINTR)
		;
}

/* Makes one printable line of whatever the program wrote. */
static void tidy(char *text)
{
	char *to = text;

	for (const char *from = text; *from; from++) {
		unsigned char c = (unsigned char)*from;

		if (c == '\n' || c == '\t' || c == '\r')
			c = ' ';
		if (c < ' ' || c == 0x7f)
			continue;
		if (c == ' ' && (to == text || to[-1] == ' '))
			continue;
		*to++ = (char)c;
	}
	while (to > text && to[-1] == ' ')
		to--;
	*to = '\0';
}

static enum checker_answer judge(int status, char *reason)
{
	char said[CHECKER_REASON_SIZE];

	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return CHECKER_ACCEPTED;
	if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_REFUSED)
		return CHECKER_REFUSED;
	memcpy(said, reason, sizeof(said));
	if (WIFSIGNALED(status))
		snprintf(reason, CHECKER_REASON_SIZE,
			 "kernelctl was killed by signal %d", WTERMSIG(status));
	else if (*said)
		snprintf(reason, CHECKER_REASON_SIZE, "%.400s", said);
	else
		snprintf(reason, CHECKER_REASON_SIZE,
			 "kernelctl ended with exit code %d",
			 WEXITSTATUS(status));
	return CHECKER_UNKNOWN;
}

enum checker_answer checker_ask(const char *program, const char *ref,
				bool profiled, char reason[CHECKER_REASON_SIZE])
{
	struct run run = { .text = reason };
	int status = 0;
	bool ended;

	memset(reason, 0, CHECKER_REASON_SIZE);
	if (!start(&run, program, ref, profiled))
		return CHECKER_UNKNOWN;
	ended = wait_for_end(&run, &status);
	if (!ended) {
		bool late = now_ms() >= run.deadline;

		stop(&run);
		snprintf(reason, CHECKER_REASON_SIZE, "%s",
			 late ? "kernelctl did not answer within 2 s" :
				"kernelctl's end could not be seen");
	} else {
		drain(&run);
		tidy(reason);
	}
	close(run.error);
	return ended ? judge(status, reason) : CHECKER_UNKNOWN;
}
