#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mark.h"
#include "rows.h"

/* Starts children one after the other; each has to end with that code. */
static void children(unsigned int marker, uint64_t n, int code,
		     void (*child)(struct run *), struct run *run)
{
	int status = code << 8;
	bool ok = true;

	mark(marker);
	for (uint64_t i = 0; ok && status == code << 8 && i < n; i++) {
		pid_t pid = fork();

		if (pid == 0)
			child(run);
		ok = pid > 0 && waitpid(pid, &status, 0) == pid;
	}
	MARK_END();
	NEED(ok, "fork");
	if (status != code << 8)
		run_wrong("a child ended with status %d", status);
}

static void leave(struct run *run)
{
	(void)run;
	_exit(7);
}

static void start_self(struct run *run)
{
	execl("/proc/self/exe", run->program, "--nothing", (char *)NULL);
	_exit(1);
}

static void start_shell(struct run *run)
{
	(void)run;
	execl("/bin/sh", "sh", "-c", "exit 9", (char *)NULL);
	_exit(1);
}

void row_fork(struct run *run, unsigned int marker, uint64_t n)
{
	children(marker, n, 7, leave, run);
}

void row_exec(struct run *run, unsigned int marker, uint64_t n)
{
	children(marker, n, 42, start_self, run);
}

void row_shell(struct run *run, unsigned int marker, uint64_t n)
{
	children(marker, n, 9, start_shell, run);
}
