/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of what only ext4 does under bytes that wait. */
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "calls.h"
#include "check.h"

#define BLOCK 4096
#define LONG_WRITE (2 * BLOCK + 100)
#define SHORT_WRITE 100
#define TOTAL (LONG_WRITE + SHORT_WRITE)

static void same(int fd, const char *want, size_t count, const char *after)
{
	static char got[BLOCK + TOTAL];

	if (size_of(fd) != count ||
	    pread(fd, got, sizeof(got), 0) != (ssize_t)count ||
	    memcmp(got, want, count) != 0)
		fail("the file differs after %s", after);
}

/* A file of whole blocks and a part, the end of which waits. */
static int waiting_file(const char *path, char *bytes)
{
	int fd = open_or_fail(path, O_RDWR | O_CREAT | O_TRUNC);

	for (int i = 0; i < TOTAL; i++)
		bytes[i] = (char)('a' + i % 23);
	write_or_fail(fd, bytes, LONG_WRITE);
	write_or_fail(fd, bytes + LONG_WRITE, SHORT_WRITE);
	return fd;
}

void run_ranges(const struct options *options)
{
	static char bytes[TOTAL], want[BLOCK + TOTAL];
	char path[4096];
	int fd;

	snprintf(path, sizeof(path), "%s", path_in(options, "ranges"));
	fd = waiting_file(path, bytes);
	if (fallocate(fd, FALLOC_FL_COLLAPSE_RANGE, 0, BLOCK))
		fail("collapse: %s", strerror(errno));
	same(fd, bytes + BLOCK, TOTAL - BLOCK, "collapse");
	close(fd);

	fd = waiting_file(path, bytes);
	if (fallocate(fd, FALLOC_FL_INSERT_RANGE, 0, BLOCK))
		fail("insert: %s", strerror(errno));
	memcpy(want + BLOCK, bytes, TOTAL);
	same(fd, want, BLOCK + TOTAL, "insert");
	close(fd);
	unlink(path);
}

/* Direct writes in flight at a time, over a file's first blocks. */
#define FLYING 1000
#define BLOCKS 256
#define ROUNDS 20
/* Seconds after which a call counts as hung. */
#define PATIENCE 300

static void submit(aio_context_t context, int fd, void *block)
{
	static struct iocb calls[FLYING];
	static struct iocb *list[FLYING];

	for (int i = 0; i < FLYING; i++) {
		calls[i] = (struct iocb){
			.aio_lio_opcode = IOCB_CMD_PWRITE,
			.aio_fildes = (uint32_t)fd,
			.aio_buf = (uintptr_t)block,
			.aio_nbytes = BLOCK,
			.aio_offset = (int64_t)(i % BLOCKS) * BLOCK,
		};
		list[i] = &calls[i];
	}
	for (long done = 0; done < FLYING;) {
		long more = syscall(SYS_io_submit, context, FLYING - done,
				    list + done);

		if (more <= 0)
			fail("io_submit: %s", strerror(errno));
		done += more;
	}
}

void run_direct(const struct options *options)
{
	static struct io_event events[FLYING];
	static char bytes[SHORT_WRITE];
	aio_context_t context = 0;
	static char block[BLOCK] __attribute__((aligned(BLOCK)));
	char path[4096];
	int fd, direct;

	snprintf(path, sizeof(path), "%s", path_in(options, "direct"));
	fd = open_or_fail(path, O_RDWR | O_CREAT | O_TRUNC);
	memset(block, 'd', BLOCK);
	for (int i = 0; i < BLOCKS; i++)
		write_or_fail(fd, block, BLOCK);
	if (fsync(fd))
		fail("fsync: %s", strerror(errno));
	direct = open_or_fail(path, O_WRONLY | O_DIRECT | O_SYNC);
	if (syscall(SYS_io_setup, FLYING, &context))
		fail("io_setup: %s", strerror(errno));
	alarm(PATIENCE);
	for (int round = 0; round < ROUNDS; round++) {
		write_or_fail(fd, bytes, sizeof(bytes));
		submit(context, direct, block);
		/* Would wait in a buffer, but for what is in flight. */
		write_or_fail(fd, bytes, sizeof(bytes));
		if (syscall(SYS_io_getevents, context, FLYING, FLYING, events,
			    NULL) != FLYING)
			fail("io_getevents: %s", strerror(errno));
		for (int i = 0; i < FLYING; i++)
			if (events[i].res != BLOCK)
				fail("a direct write: %lld",
				     (long long)events[i].res);
	}
	alarm(0);
	if (size_of(fd) != BLOCKS * BLOCK + ROUNDS * 2 * sizeof(bytes))
		fail("the size differs");
	syscall(SYS_io_destroy, context);
	close(direct);
	close(fd);
	unlink(path);
}
