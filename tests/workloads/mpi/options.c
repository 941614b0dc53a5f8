#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#include "pingpong.h"

static bool number(const char *text, int *value)
{
	char *end;
	long parsed;

	errno = 0;
	parsed = strtol(text, &end, 10);
	if (errno || end == text || *end || parsed < 1 || parsed > 100000)
		return false;
	*value = (int)parsed;
	return true;
}

bool read_options(struct options *options, int argc, char **argv, bool loud)
{
	static const struct option known[] = {
		{ "samples", required_argument, NULL, 's' },
		{ "messages", required_argument, NULL, 'm' },
		{ "wrong", required_argument, NULL, 'w' },
		{ NULL, 0, NULL, 0 },
	};
	bool ok = true;
	int option;

	*options = (struct options){ .samples = 25, .messages = 32 };
	opterr = 0;
	while (ok && (option = getopt_long(argc, argv, "", known, NULL)) >= 0) {
		if (option == 's')
			ok = number(optarg, &options->samples);
		else if (option == 'm')
			ok = number(optarg, &options->messages) &&
			     options->messages % WINDOW == 0;
		else if (option == 'w')
			options->wrong = optarg;
		else
			ok = false;
	}
	ok = ok && optind == argc;
	if (!ok && loud)
		fprintf(stderr,
			"usage: mpi-pingpong [--samples N] [--messages N, a "
			"multiple of %d] [--wrong latency|bandwidth|number], "
			"as two ranks\n",
			WINDOW);
	return ok;
}
