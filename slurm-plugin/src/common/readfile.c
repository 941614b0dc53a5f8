/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
#include "common/readfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static int read_all(int fd, char *buffer, size_t limit, size_t *size)
{
	size_t used = 0;

	for (;;) {
		ssize_t n = read(fd, buffer + used, limit + 1 - used);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno;
		if (n == 0)
			break;
		used += (size_t)n;
		if (used > limit)
			return EFBIG;
	}
	buffer[used] = '\0';
	*size = used;
	return 0;
}

int read_file(const char *path, size_t limit, char **data, size_t *size)
{
	struct stat st;
	char *buffer = NULL;
	int rc;
	/* Without O_NONBLOCK a fifo in the file's place would hang us. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

	if (fd < 0)
		return errno;
	if (fstat(fd, &st) < 0) {
		rc = errno;
		goto out;
	}
	if (!S_ISREG(st.st_mode)) {
		rc = EINVAL;
		goto out;
	}
	/* procfs and sysfs tell no true size: take the limit instead. */
	buffer = malloc(limit + 1);
	if (!buffer) {
		rc = ENOMEM;
		goto out;
	}
	rc = read_all(fd, buffer, limit, size);
out:
	close(fd);
	if (rc) {
		free(buffer);
		return rc;
	}
	*data = buffer;
	return 0;
}
