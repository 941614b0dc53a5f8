#include "run.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const char *name = "bench";

static void usage(void)
{
	fprintf(stderr,
		"usage: %s [--seed N] [--size N] [--dir FOLDER]\n"
		"       [--regions FILE] [--first N] [--prefix TEXT] "
		"[--processes N]\n",
		name);
	exit(2);
}

static uint64_t number(const char *text, uint64_t least, uint64_t most)
{
	char *end;

	errno = 0;

	unsigned long long value = strtoull(text, &end, 10);

	if (errno || *text < '0' || *text > '9' || *end || value < least ||
	    value > most) {
		fprintf(stderr,
			"%s: \"%s\" is not a number from %llu to %llu\n", name,
			text, (unsigned long long)least,
			(unsigned long long)most);
		usage();
	}
	return value;
}

static void set(struct run *run, int option)
{
	switch (option) {
	case 's':
		run->seed = number(optarg, 0, UINT32_MAX);
		return;
	case 'n':
		run->size = number(optarg, 1, UINT32_MAX);
		return;
	case 'd':
		run->dir = optarg;
		return;
	case 'f':
		run->first = (unsigned int)number(optarg, 1, 63);
		return;
	case 'p':
		run->prefix = optarg;
		return;
	case 'c':
		run->processes = (unsigned int)number(optarg, 1, 256);
		return;
	case 'r':
		run->regions = fopen(optarg, "a");
		if (!run->regions)
			run_fail(optarg);
		return;
	}
	usage();
}

void run_begin(struct run *run, int argc, char **argv)
{
	static const struct option options[] = {
		{ "seed", required_argument, NULL, 's' },
		{ "size", required_argument, NULL, 'n' },
		{ "dir", required_argument, NULL, 'd' },
		{ "first", required_argument, NULL, 'f' },
		{ "prefix", required_argument, NULL, 'p' },
		{ "processes", required_argument, NULL, 'c' },
		{ "regions", required_argument, NULL, 'r' },
		{ NULL, 0, NULL, 0 },
	};
	int option;

	name = strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0];
	*run = (struct run){
		.program = argv[0],
		.seed = 1,
		.size = 1000,
		.dir = "/tmp",
		.prefix = "",
		.first = 1,
		.processes = 8,
	};
	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1)
		set(run, option);
	if (optind != argc)
		usage();
}

void run_region(struct run *run, unsigned int number_, const char *name_,
		uint64_t operations)
{
	if (!run->regions)
		return;
	fprintf(run->regions, "%u %s%s %llu\n", number_, run->prefix, name_,
		(unsigned long long)operations);
	/* Nothing of it may be left to a child's buffer. */
	if (fflush(run->regions))
		run_fail("regions");
}

int run_end(struct run *run)
{
	if (run->regions && fclose(run->regions))
		run_fail("regions");
	return 0;
}

void run_wrong(const char *format, ...)
{
	va_list arguments;

	fprintf(stderr, "%s: ", name);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputc('\n', stderr);
	_Exit(1);
}

void run_fail(const char *what)
{
	run_wrong("%s: %s", what, strerror(errno));
}

/* splitmix64: good enough, short, and the same everywhere. */
uint64_t run_random(uint64_t *state)
{
	uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

void run_fill(void *memory, size_t size, uint64_t seed)
{
	unsigned char *bytes = memory;

	for (size_t i = 0; i < size; i += sizeof(uint64_t)) {
		uint64_t next = run_random(&seed);
		size_t left = size - i;

		memcpy(bytes + i, &next,
		       left < sizeof(next) ? left : sizeof(next));
	}
}

void run_compare(const char *what, const void *memory, size_t size,
		 uint64_t seed)
{
	const unsigned char *bytes = memory;

	for (size_t i = 0; i < size; i += sizeof(uint64_t)) {
		uint64_t next = run_random(&seed);
		size_t left = size - i;

		if (memcmp(bytes + i, &next,
			   left < sizeof(next) ? left : sizeof(next)) != 0)
			run_wrong("%s: not what was written, near byte %zu",
				  what, i);
	}
}
