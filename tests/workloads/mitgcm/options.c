#define _GNU_SOURCE
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#include "files.h"

static const char help[] =
	"Usage: mitgcm-io --dir FOLDER [options]\n"
	"\n"
	"Replays the input and output of the MITgcm ocean model (experiment 2,\n"
	"365 days) with a computation between, and checks its own results.\n"
	"\n"
	"  --dir FOLDER       where to read and write; made if it is not there\n"
	"  --compute-scale N  time steps per simulated day; 0 for no\n"
	"                     computation (default 1)\n"
	"  --io-scale N       divide files, records and lines by N (default 1)\n"
	"  --seed N           of the input and of the ocean (default 1)\n"
	"  --json             print the result as JSON\n"
	"  --keep             leave the files in the folder\n"
	"  --help             print this\n"
	"\n"
	"Exit code: 0 all is as it has to be, 1 something is not, 2 wrong "
	"usage.\n";

static bool number(const char *name, const char *text, uint64_t least,
		   uint64_t most, uint64_t *value)
{
	char *end;

	errno = 0;
	*value = strtoull(text, &end, 10);
	if (!errno && end != text && !*end && text[0] >= '0' &&
	    text[0] <= '9' && *value >= least && *value <= most)
		return true;
	return complain("--%s %s: not a number from %llu to %llu", name, text,
			(unsigned long long)least, (unsigned long long)most);
}

static bool parse_number(int option, struct options *options)
{
	uint64_t value;

	switch (option) {
	case 'c':
		if (!number("compute-scale", optarg, 0, 1000000, &value))
			return false;
		options->compute_scale = (unsigned int)value;
		return true;
	case 'i':
		if (!number("io-scale", optarg, 1, 1000000, &value))
			return false;
		options->io_scale = (unsigned int)value;
		return true;
	default:
		return number("seed", optarg, 0, UINT32_MAX, &options->seed);
	}
}

static bool finish(int argc, char **argv, const struct options *options)
{
	if (optind < argc)
		return complain("unexpected argument %s", argv[optind]);
	if (!options->dir || !options->dir[0])
		return complain("--dir FOLDER is missing");
	return true;
}

enum parsed options_parse(int argc, char **argv, struct options *options)
{
	static const struct option known[] = {
		{ "dir", required_argument, NULL, 'd' },
		{ "compute-scale", required_argument, NULL, 'c' },
		{ "io-scale", required_argument, NULL, 'i' },
		{ "seed", required_argument, NULL, 's' },
		{ "json", no_argument, NULL, 'j' },
		{ "keep", no_argument, NULL, 'k' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	int option;

	*options = (struct options){ .compute_scale = 1,
				     .io_scale = 1,
				     .seed = 1 };
	while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
		switch (option) {
		case 'd':
			options->dir = optarg;
			break;
		case 'j':
			options->json = true;
			break;
		case 'k':
			options->keep = true;
			break;
		case 'h':
			fputs(help, stdout);
			return PARSED_HELP;
		case '?':
			return PARSED_WRONG;
		default:
			if (!parse_number(option, options))
				return PARSED_WRONG;
		}
	}
	return finish(argc, argv, options) ? PARSED_RUN : PARSED_WRONG;
}
