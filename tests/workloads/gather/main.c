/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks that files behave as POSIX says, with an eye on short writes: what a
 * kernel that gathers them might get wrong. See README.md.
 */
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

static const struct {
	const char *name;
	void (*run)(const struct options *options);
} checks[] = {
	{ "random", run_random }, { "writers", run_writers },
	{ "killed", run_killed }, { "limit", run_limit },
	{ "full", run_full },     { "records", run_records },
	{ "verify", run_verify }, { "shutdown", run_shutdown },
	{ "fault", run_fault },   { "poison", run_poison },
	{ "clock", run_clock },   { "ranges", run_ranges },
	{ "direct", run_direct },
};

void fail(const char *format, ...)
{
	va_list arguments;

	fputs("gather-check: ", stderr);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputc('\n', stderr);
	exit(1);
}

const char *path_in(const struct options *options, const char *name)
{
	static char path[4096];

	snprintf(path, sizeof(path), "%s/%s", options->dir, name);
	return path;
}

static uint64_t number(const char *name, const char *text)
{
	char *end;
	unsigned long long value;

	errno = 0;
	value = strtoull(text, &end, 10);
	if (errno || end == text || *end)
		fail("--%s %s: not a number", name, text);
	return value;
}

int main(int argc, char **argv)
{
	static const struct option known[] = {
		{ "dir", required_argument, NULL, 'd' },
		{ "disk", required_argument, NULL, 'D' },
		{ "seed", required_argument, NULL, 's' },
		{ "steps", required_argument, NULL, 'n' },
		{ "wrong", no_argument, NULL, 'w' },
		{ "hold", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	struct options options = { .seed = 1, .steps = 1000 };
	int option;

	while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
		switch (option) {
		case 'd':
			options.dir = optarg;
			break;
		case 'D':
			options.disk = optarg;
			break;
		case 's':
			options.seed = number("seed", optarg);
			break;
		case 'n':
			options.steps = (unsigned int)number("steps", optarg);
			break;
		case 'w':
			options.wrong = true;
			break;
		case 'h':
			options.hold = true;
			break;
		default:
			return 2;
		}
	}
	if (!options.dir || optind != argc - 1) {
		fputs("usage: gather-check CHECK --dir DIR [--disk DIR] "
		      "[--seed N] [--steps N]\n",
		      stderr);
		return 2;
	}
	for (size_t i = 0; i < sizeof(checks) / sizeof(*checks); i++) {
		if (strcmp(checks[i].name, argv[optind]) == 0) {
			checks[i].run(&options);
			return 0;
		}
	}
	fprintf(stderr, "gather-check: no check \"%s\"\n", argv[optind]);
	return 2;
}
