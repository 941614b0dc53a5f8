#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mark.h"
#include "rows.h"

enum { LARGE = 10240 };

static const char *name_of(struct run *run, uint64_t i)
{
	static char path[4096];

	if (snprintf(path, sizeof(path), "%s/mix-%llu", run->dir,
		     (unsigned long long)i) >= (int)sizeof(path))
		run_wrong("the folder's name is too long");
	return path;
}

static void create(struct run *run, uint64_t n, size_t size, bool marked,
		   unsigned int marker)
{
	static char text[LARGE];
	bool ok = true;

	run_fill(text, size, run->seed);
	if (marked)
		mark(marker);
	for (uint64_t i = 0; ok && i < n; i++) {
		int fd = open(name_of(run, i), O_WRONLY | O_CREAT | O_EXCL,
			      0600);

		ok = fd >= 0 &&
		     (size == 0 || write(fd, text, size) == (ssize_t)size) &&
		     !close(fd);
	}
	if (marked)
		MARK_END();
	NEED(ok, "create");
}

static void check(struct run *run, uint64_t n, size_t size)
{
	static char text[LARGE + 1];

	for (uint64_t i = 0; i < n; i++) {
		int fd = open(name_of(run, i), O_RDONLY);

		NEED(fd >= 0, "created file");
		if (read(fd, text, sizeof(text)) != (ssize_t)size)
			run_wrong("%s has not %zu bytes", name_of(run, i),
				  size);
		run_compare("created file", text, size, run->seed);
		NEED(!close(fd), "created file");
	}
}

static void delete (struct run *run, uint64_t n, bool marked,
		    unsigned int marker)
{
	bool ok = true;

	if (marked)
		mark(marker);
	for (uint64_t i = 0; ok && i < n; i++)
		ok = unlink(name_of(run, i)) == 0;
	if (marked)
		MARK_END();
	NEED(ok, "delete");
	for (uint64_t i = 0; i < n; i++) {
		if (access(name_of(run, i), F_OK) == 0 || errno != ENOENT)
			run_wrong("%s is still there", name_of(run, i));
	}
}

void row_create_0k(struct run *run, unsigned int marker, uint64_t n)
{
	create(run, n, 0, true, marker);
	check(run, n, 0);
	delete (run, n, false, 0);
}

void row_delete_0k(struct run *run, unsigned int marker, uint64_t n)
{
	create(run, n, 0, false, 0);
	delete (run, n, true, marker);
}

void row_create_10k(struct run *run, unsigned int marker, uint64_t n)
{
	create(run, n, LARGE, true, marker);
	check(run, n, LARGE);
	delete (run, n, false, 0);
}

void row_delete_10k(struct run *run, unsigned int marker, uint64_t n)
{
	create(run, n, LARGE, false, 0);
	delete (run, n, true, marker);
}
