#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "mark.h"
#include "rows.h"

enum { PAGE = 4096, PAGES = 64 };

/* A file of PAGES pages, each beginning with its number; without a name. */
static int numbered(struct run *run)
{
	unsigned char page[PAGE] = { 0 };
	int fd = rows_file(run);

	for (int i = 0; i < PAGES; i++) {
		page[0] = (unsigned char)i;
		NEED(write(fd, page, PAGE) == PAGE, "numbered file");
	}
	return fd;
}

static void *map(int fd)
{
	return mmap(NULL, PAGES * PAGE, PROT_READ, MAP_SHARED, fd, 0);
}

void row_mmap(struct run *run, unsigned int marker, uint64_t n)
{
	int fd = numbered(run);
	bool ok = true;

	mark(marker);
	for (uint64_t i = 0; ok && i < n; i++) {
		unsigned char *memory = map(fd);

		ok = memory != MAP_FAILED && memory[0] == 0 &&
		     !munmap(memory, PAGES * PAGE);
	}
	MARK_END();
	NEED(ok && !close(fd), "mmap");
}

/* Faults one page after the other; one mapping has PAGES of them. */
static void faults(unsigned int marker, uint64_t n, int fd, int flags,
		   bool number)
{
	bool ok = true;

	mark(marker);
	for (uint64_t i = 0; ok && i < n;) {
		unsigned char *memory =
			mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | flags, fd, 0);

		ok = memory != MAP_FAILED &&
		     !madvise(memory, PAGES * PAGE, MADV_RANDOM);
		for (int page = 0; ok && page < PAGES && i < n; page++, i++) {
			volatile unsigned char *at = memory + page * PAGE;

			ok = *at == (number ? page : 0);
			*at = 1;
		}
		ok = ok && !munmap(memory, PAGES * PAGE);
	}
	MARK_END();
	NEED(ok, "fault");
}

void row_fault_file(struct run *run, unsigned int marker, uint64_t n)
{
	int fd = numbered(run);

	faults(marker, n, fd, 0, true);
	NEED(!close(fd), "fault");
}

void row_fault_memory(struct run *run, unsigned int marker, uint64_t n)
{
	(void)run;
	faults(marker, n, -1, MAP_ANONYMOUS, false);
}

static sigjmp_buf back;

static void jump(int number)
{
	siglongjmp(back, number);
}

void row_fault_protected(struct run *run, unsigned int marker, uint64_t n)
{
	struct sigaction action = { .sa_handler = jump }, old;
	volatile unsigned char *memory =
		mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	volatile uint64_t i = 0, came = 0;

	(void)run;
	NEED(memory != MAP_FAILED && !sigaction(SIGSEGV, &action, &old),
	     "protected page");
	mark(marker);
	for (i = 0; i < n; i++) {
		if (sigsetjmp(back, 1) == 0)
			*memory = 1;
		else
			came++;
	}
	MARK_END();
	NEED(!sigaction(SIGSEGV, &old, NULL) && !munmap((void *)memory, PAGE),
	     "protected page");
	if (came != n)
		run_wrong("%llu writes of %llu were refused",
			  (unsigned long long)came, (unsigned long long)n);
}
