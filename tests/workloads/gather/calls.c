/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "calls.h"
#include "check.h"

int open_or_fail(const char *path, int flags)
{
	int fd = open(path, flags | O_CLOEXEC, 0600);

	if (fd < 0)
		fail("%s: %s", path, strerror(errno));
	return fd;
}

void write_or_fail(int fd, const void *data, size_t count)
{
	ssize_t done = write(fd, data, count);

	if (done < 0 || (size_t)done != count)
		fail("write of %zu bytes: %zd, %s", count, done,
		     strerror(errno));
}

size_t size_of(int fd)
{
	struct stat status;

	if (fstat(fd, &status))
		fail("fstat: %s", strerror(errno));
	return (size_t)status.st_size;
}

void wait_for(pid_t child)
{
	int status;

	if (waitpid(child, &status, 0) != child || status != 0)
		fail("a writer ended with status %#x", status);
}

pid_t fork_or_fail(void)
{
	pid_t child = fork();

	if (child < 0)
		fail("fork: %s", strerror(errno));
	return child;
}

const char *said(int result)
{
	return result ? strerror(errno) : "ok";
}
