/*
 * mitgcm-io: the input and output of the MITgcm ocean model, replayed.
 *
 * The run goes as the model's does: read parameters and input, then compute
 * and write one field after the other, one file open at a time, with the file
 * of results growing beside them. At the end all files are compared with what
 * was written, and all counts with what was due.
 */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../bench/mark.h"
#include "files.h"
#include "options.h"
#include "report.h"

enum { DAYS = 365 };

static bool run(struct replay *replay, struct ocean *ocean,
		const struct options *options, struct outcome *outcome)
{
	unsigned int fields = layout_fields(&replay->layout);
	uint64_t all = (uint64_t)options->compute_scale * DAYS;
	struct span start = span_now();
	bool ok = replay_input(replay);

	span_add(&outcome->io, &start);
	for (unsigned int field = 0; ok && field < fields; field++) {
		uint64_t due = all * (field + 1) / fields;

		start = span_now();
		ocean_steps(ocean, (unsigned int)(due - outcome->steps));
		outcome->steps = due;
		span_add(&outcome->compute, &start);
		start = span_now();
		ok = replay_output(replay, ocean, field);
		span_add(&outcome->io, &start);
	}
	return ok && replay_finish(replay);
}

static bool check(struct replay *replay, const struct ocean *ocean,
		  struct outcome *outcome)
{
	bool ok = replay_verify(replay);

	outcome->digest = ocean_digest(ocean);
	outcome->error = ocean_error(ocean);
	if (outcome->error > OCEAN_TOLERANCE)
		ok = complain("computation: a cell is off by %.3e, %.0e is "
			      "allowed",
			      outcome->error, OCEAN_TOLERANCE);
	return ok;
}

static bool work(const struct options *options, struct replay *replay,
		 struct ocean *ocean)
{
	struct outcome outcome = { 0 };
	bool ran;

	if (!replay_prepare(replay))
		return false;
	/* For who counts instructions: the replay alone, not its check. */
	MARK(1);
	ran = run(replay, ocean, options, &outcome);
	MARK_END();
	if (!ran)
		return false;
	outcome.ok = check(replay, ocean, &outcome);
	return report_print(options, replay, &outcome) && outcome.ok;
}

/* The folder is ours to remove only if we made it. */
static bool in_folder(const struct options *options, struct replay *replay,
		      struct ocean *ocean)
{
	bool made = mkdir(options->dir, 0755) == 0;
	bool ok;

	if (!made && errno != EEXIST)
		return complain("create %s: %s", options->dir, strerror(errno));
	ok = work(options, replay, ocean);
	if (options->keep)
		return ok;
	if (!ok)
		return complain("the files are left in %s", options->dir);
	ok = replay_remove(replay);
	if (made && rmdir(options->dir) != 0)
		ok = complain("remove %s: %s", options->dir, strerror(errno));
	return ok;
}

int main(int argc, char **argv)
{
	struct options options;
	struct replay replay;
	struct ocean *ocean;
	bool ok;

	switch (options_parse(argc, argv, &options)) {
	case PARSED_HELP:
		return 0;
	case PARSED_WRONG:
		return 2;
	case PARSED_RUN:
		break;
	}
	ocean = ocean_new(options.seed);
	if (!ocean) {
		complain("no memory for the ocean");
		return 1;
	}
	ok = replay_init(&replay, options.dir, options.seed,
			 options.io_scale) &&
	     in_folder(&options, &replay, ocean);
	replay_free(&replay);
	ocean_free(ocean);
	return ok ? 0 : 1;
}
