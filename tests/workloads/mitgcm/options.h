/* The command line. */
#ifndef OPTIONS_H
#define OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

struct options {
	const char *dir;
	unsigned int compute_scale;
	unsigned int io_scale;
	uint64_t seed;
	bool json;
	bool keep;
};

enum parsed { PARSED_RUN, PARSED_HELP, PARSED_WRONG };

/* Prints the help, or what is wrong. */
enum parsed options_parse(int argc, char **argv, struct options *options);

#endif
