/* What is printed at the end. */
#ifndef REPORT_H
#define REPORT_H

#include "options.h"
#include "replay.h"

struct span {
	double wall;
	double user;
	double sys;
};

struct outcome {
	struct span compute;
	struct span io;
	uint64_t steps;
	uint64_t digest;
	double error;
	bool ok;
};

struct span span_now(void);
void span_add(struct span *sum, const struct span *from);

bool report_print(const struct options *options, const struct replay *replay,
		  const struct outcome *outcome);

#endif
