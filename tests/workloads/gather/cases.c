/* SPDX-License-Identifier: Apache-2.0 */
/* Checks that are no sequence of operations of one process. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "calls.h"
#include "check.h"

#define WRITERS 4
#define RECORDS 1500

struct record {
	uint32_t writer;
	uint32_t number;
	/* 28 bytes: records do not fit a block evenly. */
	unsigned char rest[20];
};

static struct record record_of(unsigned int writer, unsigned int count)
{
	struct record record = { .writer = writer, .number = count };

	memset(record.rest, (int)(writer * 31 + count), sizeof(record.rest));
	return record;
}

/* Each record is there once, whole, and those of a writer in its order. */
static void check_records(const char *path)
{
	unsigned int next[WRITERS] = { 0 };
	struct record record;
	int fd = open_or_fail(path, O_RDONLY);
	ssize_t got;

	while ((got = read(fd, &record, sizeof(record))) ==
	       (ssize_t)sizeof(record)) {
		struct record want = { 0 };

		if (record.writer < WRITERS)
			want = record_of(record.writer, next[record.writer]++);
		else
			fail("%s: a torn record", path);
		if (memcmp(&record, &want, sizeof(want)) != 0)
			fail("%s: record %u of writer %u, want %u", path,
			     record.number, record.writer, want.number);
	}
	if (got)
		fail("%s: ends with %zd bytes of a record", path, got);
	for (unsigned int i = 0; i < WRITERS; i++) {
		if (next[i] != RECORDS)
			fail("%s: %u records of writer %u", path, next[i], i);
	}
	close(fd);
}

/* Sizes that others see never shrink. */
static void watch(int fd)
{
	size_t before = 0;

	while (before < WRITERS * RECORDS * sizeof(struct record)) {
		size_t now = size_of(fd);

		if (now < before)
			fail("a size of %zu after %zu", now, before);
		before = now;
	}
}

static void write_records(const char *path, int fd, unsigned int writer)
{
	bool own = fd < 0;

	if (own)
		fd = open_or_fail(path, O_WRONLY | O_APPEND);
	for (unsigned int i = 0; i < RECORDS; i++) {
		struct record record = record_of(writer, i);

		write_or_fail(fd, &record, sizeof(record));
		if (own && i % 200 == 199) {
			close(fd);
			fd = open_or_fail(path, O_WRONLY | O_APPEND);
		}
	}
	if (close(fd))
		fail("close: %s", strerror(errno));
}

void run_writers(const struct options *options)
{
	const char *names[] = { "writers-shared", "writers-shared-append",
				"writers-own-append" };

	for (unsigned int kind = 0; kind < 3; kind++) {
		char path[4096];
		pid_t children[WRITERS + 1];
		int fd;

		snprintf(path, sizeof(path), "%s",
			 path_in(options, names[kind]));
		fd = open_or_fail(path, O_RDWR | O_CREAT | O_TRUNC |
						(kind == 1 ? O_APPEND : 0));
		for (unsigned int i = 0; i <= WRITERS; i++) {
			children[i] = fork_or_fail();
			if (children[i] == 0) {
				if (i == WRITERS)
					watch(fd);
				else
					write_records(path, kind == 2 ? -1 : fd,
						      i);
				_exit(0);
			}
		}
		for (unsigned int i = 0; i <= WRITERS; i++)
			wait_for(children[i]);
		check_records(path);
		close(fd);
		unlink(path);
	}
}

void run_killed(const struct options *options)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s", path_in(options, "killed"));
	for (unsigned int round = 0; round < 20; round++) {
		size_t count = 100 + round * 53;
		unsigned char *got = calloc(1, count + 1);
		int ready[2], status, fd;
		pid_t child;
		char byte;

		if (!got || pipe(ready))
			fail("pipe: %s", strerror(errno));
		child = fork_or_fail();
		if (child == 0) {
			fd = open_or_fail(path, O_WRONLY | O_CREAT | O_TRUNC);
			for (size_t i = 0; i < count; i++) {
				unsigned char c = (unsigned char)(i * 7);

				write_or_fail(fd, &c, 1);
			}
			write_or_fail(ready[1], "x", 1);
			for (;;)
				pause();
		}
		if (read(ready[0], &byte, 1) != 1 || kill(child, SIGKILL) ||
		    waitpid(child, &status, 0) != child || !WIFSIGNALED(status))
			fail("the writer was not killed");
		fd = open_or_fail(path, O_RDONLY);
		if (read(fd, got, count + 1) != (ssize_t)count)
			fail("a killed process lost bytes of %zu", count);
		for (size_t i = 0; i < count; i++) {
			if (got[i] != (unsigned char)(i * 7))
				fail("byte %zu of a killed process differs", i);
		}
		close(fd);
		close(ready[0]);
		close(ready[1]);
		free(got);
	}
	unlink(path);
}

/* A file that is longer than the limit may be cut, though not to grow. */
static void cut_within(int fd)
{
	const struct rlimit limit = { 50, RLIM_INFINITY };
	struct rlimit before;

	if (getrlimit(RLIMIT_FSIZE, &before) || ftruncate(fd, 0) ||
	    lseek(fd, 0, SEEK_SET) != 0)
		fail("ftruncate: %s", strerror(errno));
	for (int i = 0; i < 20; i++)
		write_or_fail(fd, "1234567", 7);
	if (setrlimit(RLIMIT_FSIZE, &limit) || ftruncate(fd, 135) ||
	    size_of(fd) != 135)
		fail("ftruncate from 140 to 135 with a limit of 50: %s",
		     strerror(errno));
	if (ftruncate(fd, 136) == 0 || errno != EFBIG)
		fail("ftruncate from 135 to 136 with a limit of 50");
	if (setrlimit(RLIMIT_FSIZE, &before))
		fail("setrlimit: %s", strerror(errno));
}

void run_limit(const struct options *options)
{
	const struct rlimit limit = { 10001, RLIM_INFINITY };
	char path[4096], byte;
	struct rlimit before;
	pid_t reader;
	size_t total = 0;
	int fd;

	snprintf(path, sizeof(path), "%s", path_in(options, "limit"));
	if (getrlimit(RLIMIT_FSIZE, &before) ||
	    signal(SIGXFSZ, SIG_IGN) == SIG_ERR)
		fail("getrlimit: %s", strerror(errno));
	fd = open_or_fail(path, O_WRONLY | O_CREAT | O_TRUNC);
	if (setrlimit(RLIMIT_FSIZE, &limit))
		fail("setrlimit: %s", strerror(errno));
	for (;;) {
		ssize_t done = write(fd, "1234567", 7);

		if (done < 0)
			break;
		total += (size_t)done;
	}
	if (errno != EFBIG || total != limit.rlim_cur || size_of(fd) != total)
		fail("%zu bytes with a limit of %zu, size %zu: %s", total,
		     (size_t)limit.rlim_cur, size_of(fd), strerror(errno));
	if (setrlimit(RLIMIT_FSIZE, &before) || ftruncate(fd, 0) ||
	    lseek(fd, 0, SEEK_SET) != 0)
		fail("setrlimit: %s", strerror(errno));
	for (int i = 0; i < 2000; i++)
		write_or_fail(fd, "1234567", 7);
	reader = fork_or_fail();
	if (reader == 0) {
		const struct rlimit none = { 10, 10 };
		int in = open_or_fail(path, O_RDONLY);

		signal(SIGXFSZ, SIG_DFL);
		if (setrlimit(RLIMIT_FSIZE, &none) ||
		    pread(in, &byte, 1, 13999) != 1 || byte != '7')
			fail("a reader with a limit: %s", strerror(errno));
		_exit(0);
	}
	wait_for(reader);
	cut_within(fd);
	if (close(fd))
		fail("close: %s", strerror(errno));
	unlink(path);
}

void run_full(const struct options *options)
{
	/* Sizes of a write. */
	static const size_t sizes[] = { 7, 100, 360, 1000, 4095 };

	for (size_t kind = 0; kind < sizeof(sizes) / sizeof(*sizes); kind++) {
		size_t count = sizes[kind], total = 0, at = 0;
		unsigned char data[4096], got[4096];
		char path[4096];
		int fd;
		ssize_t done;

		snprintf(path, sizeof(path), "%s", path_in(options, "full"));
		fd = open_or_fail(path, O_RDWR | O_CREAT | O_TRUNC);
		for (;;) {
			for (size_t i = 0; i < count; i++)
				data[i] = (unsigned char)((total + i) * 13);
			done = write(fd, data, count);
			if (done < 0)
				break;
			total += (size_t)done;
		}
		if (errno != ENOSPC)
			fail("write: %s, want ENOSPC", strerror(errno));
		/* Whatever was taken is there, and no later call fails. */
		if (size_of(fd) != total || fsync(fd))
			fail("size %zu of %zu: %s", size_of(fd), total,
			     strerror(errno));
		while ((done = pread(fd, got, sizeof(got), (off_t)at)) > 0) {
			for (size_t i = 0; i < (size_t)done; i++, at++) {
				if (got[i] != (unsigned char)(at * 13))
					fail("full: byte %zu differs", at);
			}
		}
		if (at != total || close(fd))
			fail("full: %zu of %zu bytes: %s", at, total,
			     strerror(errno));
		unlink(path);
		sync();
	}
}

/* Records have 11 bytes. */
#define SYNCED 5000
#define AFTER 700

void run_records(const struct options *options)
{
	int fd = open_or_fail(path_in(options, "records"),
			      O_WRONLY | O_CREAT | O_TRUNC);
	char line[16];

	for (int i = 0; i < SYNCED + AFTER; i++) {
		snprintf(line, sizeof(line), "%010d\n", i);
		write_or_fail(fd, line, 11);
		if (i == SYNCED - 1 && fsync(fd))
			fail("fsync: %s", strerror(errno));
	}
	/* Neither closed nor looked at: a cut finds bytes that wait. */
	if (options->hold) {
		puts("written");
		fflush(stdout);
		pause();
	}
	close(fd);
}

void run_verify(const struct options *options)
{
	int fd = open_or_fail(path_in(options, "records"), O_RDONLY);
	size_t size = size_of(fd);
	char line[32], got[16];

	if (size < SYNCED * 11)
		fail("lost: %zu bytes of %d that were synced", size,
		     SYNCED * 11);
	for (size_t at = 0; at < size; at += 11) {
		ssize_t done = pread(fd, got, 11, (off_t)at);

		snprintf(line, sizeof(line), "%010zu\n", at / 11);
		for (ssize_t i = 0; i < done; i++) {
			if (got[i] != line[i])
				fail("byte %zu differs", at + (size_t)i);
		}
	}
	close(fd);
	printf("%zu\n", size);
}

void run_clock(const struct options *options)
{
	struct timespec begin, end;
	int fd = open_or_fail(path_in(options, "clock"),
			      O_WRONLY | O_CREAT | O_TRUNC);

	clock_gettime(CLOCK_MONOTONIC, &begin);
	for (int i = 0; i < 40000; i++)
		write_or_fail(fd, "12345678", 8);
	if (close(fd))
		fail("close: %s", strerror(errno));
	clock_gettime(CLOCK_MONOTONIC, &end);
	printf("%lld\n", (long long)(end.tv_sec - begin.tv_sec) * 1000000000 +
				 (end.tv_nsec - begin.tv_nsec));
	unlink(path_in(options, "clock"));
}
