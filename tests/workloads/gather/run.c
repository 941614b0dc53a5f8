/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "run.h"

size_t below(struct run *run, size_t bound)
{
	/* Knuth's MMIX; the high bits are the good ones. */
	run->random = run->random * 6364136223846793005u + 1442695040888963407u;
	return (size_t)(run->random >> 33) % bound;
}

const char *name_of(struct run *run, unsigned int file)
{
	char name[16];

	snprintf(name, sizeof(name), "file-%u", file);
	return path_in(run->options, name);
}

/* Short ones mostly, and what lies around a block. */
size_t some_count(struct run *run)
{
	switch (below(run, 12)) {
	case 0:
		return below(run, LARGEST - 1) + 1;
	case 1:
		return BLOCK - 2 + below(run, 5);
	case 2:
	case 3:
		return below(run, 1000) + 1;
	default:
		return below(run, 40) + 1;
	}
}

void fill(struct run *run, size_t count)
{
	for (size_t i = 0; i < count; i++)
		run->data[i] = (unsigned char)(below(run, 255) + 1);
}

/* A descriptor that is open, or -1. */
int some_descriptor(struct run *run)
{
	size_t first = below(run, MODEL_DESCRIPTORS);

	for (size_t i = 0; i < MODEL_DESCRIPTORS; i++) {
		size_t at = (first + i) % MODEL_DESCRIPTORS;

		if (run->model.opened[at])
			return (int)at;
	}
	return -1;
}

bool has_room(const struct opened *opened, size_t count)
{
	size_t at = opened->append ? opened->content->size : opened->position;

	return at + count <= MODEL_MAX;
}

int64_t now(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

int64_t modified(struct run *run, int at)
{
	struct stat status;

	if (fstat(run->fds[at], &status))
		WRONG(run, "fstat: %s", strerror(errno));
	return (int64_t)status.st_mtim.tv_sec * 1000000000 +
	       status.st_mtim.tv_nsec;
}

void check_size(struct run *run, int at)
{
	struct opened *opened = run->model.opened[at];
	struct stat status;
	int rest = 0;

	if (fstat(run->fds[at], &status))
		WRONG(run, "fstat: %s", strerror(errno));
	if ((size_t)status.st_size != opened->content->size)
		WRONG(run, "size %zu, want %zu", (size_t)status.st_size,
		      opened->content->size);
	if (opened->content->modified &&
	    modified(run, at) != opened->content->modified)
		WRONG(run, "the time of the last write changed");
	if (opened->position <= opened->content->size &&
	    (ioctl(run->fds[at], FIONREAD, &rest) ||
	     (size_t)rest != opened->content->size - opened->position))
		WRONG(run, "FIONREAD says %d of %zu - %zu", rest,
		      opened->content->size, opened->position);
}

void check_position(struct run *run, int at)
{
	off_t position = lseek(run->fds[at], 0, SEEK_CUR);

	if ((size_t)position != run->model.opened[at]->position)
		WRONG(run, "position %lld, want %zu", (long long)position,
		      run->model.opened[at]->position);
}

void check_bytes(struct run *run, const struct content *content, size_t from,
		 const unsigned char *got, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (got[i] != content->bytes[from + i])
			WRONG(run, "byte %zu of %zu is %u, want %u", from + i,
			      content->size, got[i], content->bytes[from + i]);
	}
}

/* Through a descriptor of its own, as another process would. */
void check_content(struct run *run, unsigned int file)
{
	struct content *content = run->model.named[file];
	unsigned char *got = malloc(MODEL_MAX + 1);
	int fd = open(name_of(run, file), O_RDONLY | O_CLOEXEC);
	ssize_t count;

	if (!got || fd < 0)
		WRONG(run, "open: %s", strerror(errno));
	count = read(fd, got, MODEL_MAX + 1);
	if (count < 0 || (size_t)count != content->size)
		WRONG(run, "read %zd bytes of %zu", count, content->size);
	check_bytes(run, content, 0, got, (size_t)count);
	close(fd);
	free(got);
}

void wrote(struct run *run, int at, ssize_t done, size_t count, int64_t before)
{
	struct content *content = run->model.opened[at]->content;
	int64_t after;

	if (done < 0 || (size_t)done != count)
		WRONG(run, "%zd of %zu bytes: %s", done, count,
		      strerror(errno));
	content->modified = modified(run, at);
	after = now(CLOCK_REALTIME);
	if (content->modified < before || content->modified > after)
		WRONG(run, "its time is %lld ns before, %lld after the write",
		      (long long)(before - content->modified),
		      (long long)(content->modified - after));
	if (run->options->wrong && content->size > 20)
		content->bytes[below(run, content->size)] ^= 1;
}
