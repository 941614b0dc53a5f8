#define _GNU_SOURCE
#include "files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "digest.h"

bool complain(const char *format, ...)
{
	va_list args;

	fputs("mitgcm-io: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	return false;
}

static bool fits(int length, const struct replay *replay)
{
	if (length > 0 && length < PATH_BYTES)
		return true;
	return complain("folder name is too long: %s", replay->dir);
}

bool name_bin(const struct replay *replay, unsigned int bin, char *path)
{
	return fits(
		snprintf(path, PATH_BYTES, "%s/input_%u.bin", replay->dir, bin),
		replay);
}

bool name_param(const struct replay *replay, char *path)
{
	return fits(snprintf(path, PATH_BYTES, "%s/parameters", replay->dir),
		    replay);
}

bool name_log(const struct replay *replay, char *path)
{
	return fits(snprintf(path, PATH_BYTES, "%s/results.log", replay->dir),
		    replay);
}

bool name_field(const struct replay *replay, unsigned int field,
		unsigned int tile, const char *suffix, char *path)
{
	const char *kind = kind_name(layout_kind(&replay->layout, field));

	return fits(snprintf(path, PATH_BYTES, "%s/%s_%03u.%03u.%03u.%s",
			     replay->dir, kind, field, tile % TILES_X + 1,
			     tile / TILES_X + 1, suffix),
		    replay);
}

int file_create(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

	if (fd < 0)
		complain("create %s: %s", path, strerror(errno));
	return fd;
}

int file_open(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		complain("open %s: %s", path, strerror(errno));
	return fd;
}

bool file_close(int fd, const char *path)
{
	if (close(fd) == 0)
		return true;
	return complain("close %s: %s", path, strerror(errno));
}

bool file_write(int fd, const void *data, size_t size, struct totals *count,
		struct written *written, const char *path)
{
	ssize_t done = write(fd, data, size);

	count->writes++;
	if (done < 0)
		return complain("write %s: %s", path, strerror(errno));
	count->bytes += (uint64_t)done;
	if ((size_t)done != size)
		return complain("write %s: %zd of %zu bytes went out", path,
				done, size);
	written->digest = digest_add(written->digest, data, size);
	written->size += size;
	return true;
}

bool file_read(int fd, void *data, size_t size, struct totals *count,
	       const char *path)
{
	ssize_t done = read(fd, data, size);

	count->reads++;
	if (done < 0)
		return complain("read %s: %s", path, strerror(errno));
	count->bytes += (uint64_t)done;
	if ((size_t)done != size)
		return complain("read %s: %zd of %zu bytes came in", path, done,
				size);
	return true;
}

bool file_seek(int fd, uint64_t offset, struct totals *count, const char *path)
{
	off_t at = lseek(fd, (off_t)offset, SEEK_SET);

	count->seeks++;
	if (at >= 0 && (uint64_t)at == offset)
		return true;
	return complain("seek %s: %s", path, strerror(errno));
}

bool file_fill(int fd, const void *data, size_t size, uint64_t offset,
	       const char *path)
{
	const char *rest = data;

	while (size) {
		ssize_t done = pwrite(fd, rest, size, (off_t)offset);

		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return complain("write %s: %s", path, strerror(errno));
		rest += done;
		size -= (size_t)done;
		offset += (uint64_t)done;
	}
	return true;
}

static bool map_digest(int fd, const char *path, struct written *found)
{
	struct stat stat;
	void *data;

	if (fstat(fd, &stat) != 0)
		return complain("stat %s: %s", path, strerror(errno));
	*found = (struct written){ DIGEST_START, (uint64_t)stat.st_size };
	if (!stat.st_size)
		return true;
	data = mmap(NULL, (size_t)stat.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (data == MAP_FAILED)
		return complain("map %s: %s", path, strerror(errno));
	found->digest = digest_add(DIGEST_START, data, (size_t)stat.st_size);
	munmap(data, (size_t)stat.st_size);
	return true;
}

bool file_digest(const char *path, struct written *found)
{
	int fd = file_open(path);
	bool ok;

	if (fd < 0)
		return false;
	ok = map_digest(fd, path, found);
	return file_close(fd, path) && ok;
}
