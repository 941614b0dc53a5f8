/*
 * io-write8: the paper's I/O benchmark. --size writes of 8 bytes to one file,
 * each a system call; the file is then read and compared.
 */
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mark.h"
#include "run.h"

static bool put(int fd, uint64_t *series)
{
	uint64_t value = run_random(series);

	return write(fd, &value, sizeof(value)) == (ssize_t)sizeof(value);
}

static void write_all(struct run *run, int fd)
{
	uint64_t series = run->seed;
	bool ok = true;

	mark(run->first);
	for (uint64_t i = 0; ok && i < run->size; i++)
		ok = put(fd, &series);
	MARK_END();
	if (!ok)
		run_fail("write");
	run_region(run, run->first, "write8", run->size);
}

static void check(struct run *run, int fd)
{
	uint64_t series = run->seed, at = 0;
	uint64_t buffer[512];
	struct stat about;
	ssize_t got;

	if (fstat(fd, &about) || lseek(fd, 0, SEEK_SET))
		run_fail("check");
	if ((uint64_t)about.st_size != run->size * sizeof(uint64_t))
		run_wrong("the file has %lld bytes", (long long)about.st_size);
	while ((got = read(fd, buffer, sizeof(buffer))) > 0) {
		for (size_t i = 0; i < (size_t)got / sizeof(uint64_t);
		     i++, at++)
			if (buffer[i] != run_random(&series))
				run_wrong("write %llu is not in the file",
					  (unsigned long long)at);
	}
	if (got < 0)
		run_fail("read");
	if (at != run->size)
		run_wrong("%llu values of %llu in the file",
			  (unsigned long long)at,
			  (unsigned long long)run->size);
}

int main(int argc, char **argv)
{
	struct run run;
	char path[4096];

	run_begin(&run, argc, argv);
	if (snprintf(path, sizeof(path), "%s/io-write8", run.dir) >=
	    (int)sizeof(path))
		run_wrong("the folder's name is too long");

	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);

	if (fd < 0)
		run_fail(path);
	write_all(&run, fd);
	check(&run, fd);
	if (close(fd) || unlink(path))
		run_fail(path);
	return run_end(&run);
}
