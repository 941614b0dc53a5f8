/* SPDX-License-Identifier: Apache-2.0 */
/* Checks with something that fails or is slow under bytes that wait. */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "calls.h"
#include "check.h"

/* ext4's ioctl, which has no header: at once, without a last sync. */
#define EXT4_SHUTDOWN _IOR('X', 125, uint32_t)
#define EXT4_SHUTDOWN_AT_ONCE 2

void run_shutdown(const struct options *options)
{
	uint32_t how = EXT4_SHUTDOWN_AT_ONCE;
	char path[4096];
	int folder, writer, copy;
	pid_t child;

	snprintf(path, sizeof(path), "%s", path_in(options, "shutdown"));
	folder = open_or_fail(options->disk ? options->disk : options->dir,
			      O_RDONLY | O_DIRECTORY);
	writer = open_or_fail(path, O_WRONLY | O_CREAT | O_TRUNC);
	copy = dup(writer);
	for (int i = 0; i < 20; i++)
		write_or_fail(writer, "1234567", 7);
	if (copy < 0 || ioctl(folder, EXT4_SHUTDOWN, &how))
		fail("shutdown: %s", strerror(errno));
	/* Its end closes both, and nobody hears what that says. */
	child = fork_or_fail();
	if (child == 0)
		_exit(0);
	wait_for(child);
	printf("close: %s\n", said(close(writer)));
	printf("again: %s\n", said(close(copy)));
	close(folder);
}

#define PAGE 4096
/* Seconds after which a call counts as hung. */
#define PATIENCE 120

/* A page of memory whose first fault is told to *fd. */
static char *absent_page(int *fd)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register range = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	char *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	*fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
	range.range.start = (uintptr_t)page;
	range.range.len = PAGE;
	if (page == MAP_FAILED || *fd < 0 || ioctl(*fd, UFFDIO_API, &api) ||
	    ioctl(*fd, UFFDIO_REGISTER, &range))
		fail("userfaultfd: %s", strerror(errno));
	return page;
}

/* Fills the page only after sync and a reader are through with the file. */
static void serve(int faults, const char *page, const char *path)
{
	static char source[PAGE] = "abcdefg";
	struct uffdio_copy copy = { .dst = (uintptr_t)page,
				    .src = (uintptr_t)source,
				    .len = PAGE };
	struct uffd_msg message;
	char got[32];
	int fd;

	if (read(faults, &message, sizeof(message)) != sizeof(message) ||
	    message.event != UFFD_EVENT_PAGEFAULT)
		fail("no fault: %s", strerror(errno));
	sync();
	fd = open_or_fail(path, O_RDONLY);
	if (read(fd, got, sizeof(got)) != 14 ||
	    memcmp(got, "12345671234567", 14) != 0 || fsync(fd))
		fail("what waited is not in the file");
	close(fd);
	if (ioctl(faults, UFFDIO_COPY, &copy))
		fail("UFFDIO_COPY: %s", strerror(errno));
}

void run_fault(const struct options *options)
{
	char path[4096], got[32];
	int fd, faults;
	const char *page = absent_page(&faults);
	pid_t server;

	snprintf(path, sizeof(path), "%s", path_in(options, "fault"));
	fd = open_or_fail(path, O_RDWR | O_CREAT | O_TRUNC);
	write_or_fail(fd, "1234567", 7);
	write_or_fail(fd, "1234567", 7);
	server = fork_or_fail();
	if (server == 0) {
		serve(faults, page, path);
		_exit(0);
	}
	/* Its end frees the page, and all who wait for it. */
	alarm(PATIENCE);
	write_or_fail(fd, page, 7);
	wait_for(server);
	alarm(0);
	if (pread(fd, got, sizeof(got), 0) != 21 ||
	    memcmp(got, "12345671234567abcdefg", 21) != 0 || close(fd))
		fail("the file differs: %s", strerror(errno));
	unlink(path);
}

/* The number of the page of memory that holds the file's beginning. */
static uint64_t frame_of(int fd)
{
	const volatile char *page =
		mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
	int pagemap = open_or_fail("/proc/self/pagemap", O_RDONLY);
	uint64_t entry;

	if (page == MAP_FAILED || *page != '1' ||
	    pread(pagemap, &entry, sizeof(entry),
		  (off_t)((uintptr_t)page / PAGE * sizeof(entry))) !=
		    sizeof(entry) ||
	    munmap((void *)(uintptr_t)page, PAGE))
		fail("pagemap: %s", strerror(errno));
	close(pagemap);
	/* The bits above are flags. */
	return entry & ((UINT64_C(1) << 55) - 1);
}

void run_poison(const struct options *options)
{
	const char *path = path_in(options, "poison");
	int fd = open_or_fail(path, O_RDWR | O_CREAT | O_TRUNC);
	int lose = open_or_fail("/sys/kernel/debug/hwpoison/corrupt-pfn",
				O_WRONLY);
	char number[32];

	write_or_fail(fd, "1234567", 7);
	snprintf(number, sizeof(number), "%llu\n",
		 (unsigned long long)frame_of(fd));
	write_or_fail(fd, "1234567", 7);
	write_or_fail(fd, "1234567", 7);
	write_or_fail(lose, number, strlen(number));
	printf("fsync: %s\n", said(fsync(fd)));
	printf("again: %s\n", said(fsync(fd)));
	printf("close: %s\n", said(close(fd)));
	close(lose);
}
