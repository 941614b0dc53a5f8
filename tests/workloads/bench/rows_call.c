#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/select.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "mark.h"
#include "rows.h"

void row_null(struct run *run, unsigned int marker, uint64_t n)
{
	pid_t parent = getppid();
	uint64_t same = 0;

	(void)run;
	mark(marker);
	for (uint64_t i = 0; i < n; i++)
		same += syscall(SYS_getppid) == parent;
	MARK_END();
	if (same != n)
		run_wrong("getppid: another parent");
}

void row_read(struct run *run, unsigned int marker, uint64_t n)
{
	int fd = open("/dev/zero", O_RDONLY);
	bool ok = fd >= 0;
	char byte = 1;

	(void)run;
	mark(marker);
	for (uint64_t i = 0; ok && i < n; i++) {
		byte = 1;
		ok = read(fd, &byte, 1) == 1 && byte == 0;
	}
	MARK_END();
	NEED(ok && !close(fd), "read /dev/zero");
}

void row_write(struct run *run, unsigned int marker, uint64_t n)
{
	int fd = open("/dev/null", O_WRONLY);
	bool ok = fd >= 0;

	(void)run;
	mark(marker);
	for (uint64_t i = 0; ok && i < n; i++)
		ok = write(fd, "x", 1) == 1;
	MARK_END();
	NEED(ok && !close(fd), "write /dev/null");
}

void row_stat(struct run *run, unsigned int marker, uint64_t n)
{
	bool ok = true;

	mark(marker);
	for (uint64_t i = 0; ok && i < n; i++) {
		struct stat about;

		ok = stat(run->dir, &about) == 0 && S_ISDIR(about.st_mode);
	}
	MARK_END();
	NEED(ok, "stat");
}

void row_open(struct run *run, unsigned int marker, uint64_t n)
{
	bool ok = true;

	mark(marker);
	for (uint64_t i = 0; ok && i < n; i++) {
		int fd = open(run->dir, O_RDONLY | O_DIRECTORY);

		ok = fd >= 0 && close(fd) == 0;
	}
	MARK_END();
	NEED(ok, "open and close");
}

static volatile sig_atomic_t handled;

static void handle(int number)
{
	(void)number;
	handled = handled + 1;
}

void row_sigaction(struct run *run, unsigned int marker, uint64_t n)
{
	struct sigaction action = { .sa_handler = handle }, old;
	bool ok = sigaction(SIGUSR1, &action, NULL) == 0;

	(void)run;
	mark(marker);
	for (uint64_t i = 0; ok && i < n; i++)
		ok = sigaction(SIGUSR1, &action, &old) == 0 &&
		     old.sa_handler == handle;
	MARK_END();
	action.sa_handler = SIG_DFL;
	NEED(ok && !sigaction(SIGUSR1, &action, NULL), "sigaction");
}

void row_signal(struct run *run, unsigned int marker, uint64_t n)
{
	struct sigaction action = { .sa_handler = handle };
	pid_t self = getpid();
	bool ok = sigaction(SIGUSR1, &action, NULL) == 0;

	(void)run;
	handled = 0;
	mark(marker);
	for (uint64_t i = 0; ok && i < n; i++)
		ok = kill(self, SIGUSR1) == 0;
	MARK_END();
	NEED(ok, "kill");
	if ((uint64_t)handled != n)
		run_wrong("%d of %llu signals came", (int)handled,
			  (unsigned long long)n);
	action.sa_handler = SIG_DFL;
	NEED(!sigaction(SIGUSR1, &action, NULL), "sigaction");
}

void row_select(struct run *run, unsigned int marker, uint64_t n)
{
	enum { PIPES = 32 }; /* two descriptors each */

	int ends[PIPES][2], highest = 0;
	fd_set readers;
	bool ok = true;

	(void)run;
	FD_ZERO(&readers);
	for (int i = 0; i < PIPES; i++) {
		NEED(!pipe(ends[i]), "pipe");
		FD_SET(ends[i][0], &readers);
		FD_SET(ends[i][1], &readers);
		highest = ends[i][1] > highest ? ends[i][1] : highest;
	}
	NEED(write(ends[PIPES - 1][1], "x", 1) == 1, "pipe");
	mark(marker);
	for (uint64_t i = 0; ok && i < n; i++) {
		fd_set ready = readers;

		ok = select(highest + 1, &ready, NULL, NULL, NULL) == 1 &&
		     FD_ISSET(ends[PIPES - 1][0], &ready);
	}
	MARK_END();
	NEED(ok, "select");
	for (int i = 0; i < PIPES; i++)
		NEED(!close(ends[i][0]) && !close(ends[i][1]), "pipe");
}
