/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
#include "node/refusals.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "node/nodestate.h"

#define TEMPORARY "." REFUSALS_FILE ".new"
#define LOCK "." REFUSALS_FILE ".lock"
#define LINE_MAX_SIZE (BOOT_ID_LENGTH + REFUSAL_CAUSE_MAX + 80)
#define TEXT_SIZE ((REFUSALS_MAX + 1) * LINE_MAX_SIZE)
#define LOCK_TRIES 20
#define LOCK_PAUSE_US 50000

/* Opens the folder of node.state if it can be trusted; -1 and errno if not. */
static int open_folder(const char *node_state)
{
	char path[PATH_MAX];
	const char *slash = strrchr(node_state, '/');
	struct stat st;
	int fd;

	if (!slash || slash - node_state >= PATH_MAX - 1) {
		errno = EINVAL;
		return -1;
	}
	snprintf(path, sizeof(path), "%.*s/", (int)(slash - node_state),
		 node_state);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	if (fstat(fd, &st) == 0 && st.st_uid == geteuid() &&
	    !(st.st_mode & (S_IWGRP | S_IWOTH)))
		return fd;
	close(fd);
	errno = EPERM;
	return -1;
}

/* A file of its own: any user can lock the folder, which all can read. */
static int open_lock(int folder)
{
	struct stat st;
	int fd = openat(folder, LOCK, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW,
			0600);

	if (fd < 0)
		return -1;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
	    st.st_uid == geteuid())
		return fd;
	close(fd);
	errno = EPERM;
	return -1;
}

/*
 * Several prologs may run at once; none waits for longer than a second. The
 * lock ends with the descriptor; -1 and errno if there is none.
 */
static int lock(int folder)
{
	int fd = open_lock(folder);

	if (fd < 0)
		return -1;
	for (int i = 0; i < LOCK_TRIES; i++) {
		if (flock(fd, LOCK_EX | LOCK_NB) == 0)
			return fd;
		if (errno != EWOULDBLOCK && errno != EINTR)
			break;
		usleep(LOCK_PAUSE_US);
	}
	close(fd);
	errno = EAGAIN;
	return -1;
}

/* What is there, without what is no whole line; a file that is odd is none. */
static size_t read_old(int folder, char text[TEXT_SIZE])
{
	struct stat st;
	ssize_t size = -1;
	char *end;
	int fd = openat(folder, REFUSALS_FILE,
			O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

	if (fd >= 0) {
		if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
		    st.st_uid == geteuid() &&
		    st.st_size <= (off_t)(REFUSALS_MAX * LINE_MAX_SIZE))
			size = read(fd, text, REFUSALS_MAX * LINE_MAX_SIZE);
		close(fd);
	}
	if (size <= 0 || memchr(text, '\0', (size_t)size))
		return 0;
	end = memrchr(text, '\n', (size_t)size);
	return end ? (size_t)(end - text) + 1 : 0;
}

/* The begin of the last REFUSALS_MAX lines. */
static const char *newest(const char *text, size_t size)
{
	const char *begin = text + size;

	for (int lines = 0; begin > text; begin--) {
		if (begin[-1] == '\n' && lines++ == REFUSALS_MAX)
			break;
	}
	return begin;
}

static size_t append(char *text, size_t size, const struct refusal *r)
{
	char cause[REFUSAL_CAUSE_MAX + 1];
	int length;

	snprintf(cause, sizeof(cause), "%s", r->cause);
	for (char *p = cause; *p; p++) {
		if (*p < ' ' || *p > '~')
			*p = '?';
	}
	length = snprintf(text + size, LINE_MAX_SIZE,
			  "boot_id=%.36s time=%lld job=%u cause=%s\n",
			  r->boot_id, (long long)r->time, (unsigned int)r->job,
			  cause);
	return size + (size_t)length;
}

static int replace(int folder, const char *text, size_t size)
{
	int rc = 0;
	int fd;

	(void)unlinkat(folder, TEMPORARY, 0);
	fd = openat(folder, TEMPORARY,
		    O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
	if (fd < 0)
		return errno;
	while (size > 0) {
		ssize_t n = write(fd, text, size);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			rc = errno;
			break;
		}
		text += n;
		size -= (size_t)n;
	}
	if (close(fd) < 0 && !rc)
		rc = errno;
	if (!rc && renameat(folder, TEMPORARY, folder, REFUSALS_FILE) < 0)
		rc = errno;
	if (rc)
		(void)unlinkat(folder, TEMPORARY, 0);
	return rc;
}

int refusals_add(const char *node_state, const struct refusal *refusal)
{
	char text[TEXT_SIZE];
	const char *begin;
	size_t size;
	int rc;
	int locked;
	int folder = open_folder(node_state);

	if (folder < 0)
		return errno;
	locked = lock(folder);
	if (locked < 0) {
		rc = errno;
		close(folder);
		return rc;
	}
	size = append(text, read_old(folder, text), refusal);
	begin = newest(text, size);
	rc = replace(folder, begin, size - (size_t)(begin - text));
	close(locked);
	close(folder);
	return rc;
}
