/* A made-up run, block by block, and what has to be counted for it. */
#include <stdlib.h>

#include "blocks.h"
#include "core.h"
#include "regions.h"
#include "tap.h"

#define KERNEL UINT64_C(0xffffffff81000000)

static struct blocks all;

static struct block *make(uint64_t start, uint32_t n, enum insn_kind kind,
			  uint64_t target)
{
	struct block like = {
		.start = start,
		.end = start + 4 * n,
		.last = start + 4 * (n - 1),
		.target = target,
		.instructions = n,
		.kind = (uint8_t)kind,
	};

	return blocks_get(&all, &like);
}

static void runs(void)
{
	struct core *core = calloc(1, sizeof(*core));
	struct block *loop = make(KERNEL, 10, INSN_CONDITIONAL, KERNEL);
	struct block *behind = make(KERNEL + 40, 3, INSN_JUMP, 0);
	struct block *timer = make(KERNEL + 4096, 5, INSN_OTHER, 0);
	struct block *user = make(0x400000, 7, INSN_OTHER, 0);
	struct counts sum = { 0 };

	core_run(core, user);
	core_run(core, loop); /* then taken */
	core_run(core, loop); /* then not taken */
	core_run(core, behind);
	core_run(core, loop); /* then a timer: undecided */
	core_run(core, timer);
	core_run(core, user);
	core_sum(core, &sum);

	const uint64_t *kernel = sum.of[DOMAIN_KERNEL];

	is_int(sum.of[DOMAIN_USER][COUNT_INSTRUCTIONS], 14, "user's own");
	is_int(kernel[COUNT_INSTRUCTIONS], 38, "the kernel's own");
	is_int(kernel[COUNT_BRANCHES], 2, "decided branches");
	is_int(kernel[COUNT_TAKEN_BRANCHES], 2, "one branch, one jump taken");
	is_int(kernel[COUNT_MISPREDICTIONS], 1, "the first one was not known");
	is_int(kernel[COUNT_L1I_MISSES], 2, "lines of the kernel");
	is_int(sum.of[DOMAIN_USER][COUNT_L1I_MISSES], 1, "lines of the user");
	free(core);
}

static void repeats(void)
{
	struct core *core = calloc(1, sizeof(*core));
	struct block *copy = make(KERNEL + 8192, 4, INSN_REP, 0);
	struct block *again = make(KERNEL + 8192 + 12, 1, INSN_REP, 0);
	struct block *after = make(KERNEL + 8192 + 16, 2, INSN_OTHER, 0);
	struct counts sum = { 0 };

	core_run(core, copy);
	for (int i = 0; i < 99; i++)
		core_run(core, again);
	core_run(core, after);
	core_run(core, again); /* jumped to: an instruction */
	core_sum(core, &sum);
	is_int(sum.of[DOMAIN_KERNEL][COUNT_INSTRUCTIONS], 7,
	       "a copy counts once");
	is_int(sum.of[DOMAIN_KERNEL][COUNT_REP_ITERATIONS], 99,
	       "its iterations count apart");
	is_int(sum.of[DOMAIN_KERNEL][COUNT_TAKEN_BRANCHES], 0,
	       "and are no branches");

	core_run(core, copy);
	core_break(core);
	core_run(core, again);
	memset(&sum, 0, sizeof(sum));
	core_sum(core, &sum);
	is_int(sum.of[DOMAIN_KERNEL][COUNT_REP_ITERATIONS], 99,
	       "nothing follows what was cut off");
	free(core);
}

static char *text_of(int (*write)(FILE *))
{
	char *text = NULL;
	size_t size;
	FILE *to = open_memstream(&text, &size);

	is_int(write(to), 0, "written");
	fclose(to);
	return text;
}

static int write_ran(FILE *to)
{
	return blocks_write(&all, BLOCKS_RAN, to);
}

static int write_in_region(FILE *to)
{
	return blocks_write(&all, BLOCKS_REGION, to);
}

static int write_runs(FILE *to)
{
	return blocks_write(&all, BLOCKS_RUNS, to);
}

static void traces(void)
{
	char *text;

	blocks_free(&all);
	for (uint64_t i = 0; i < 5000; i++)
		make(KERNEL + 64 * (5000 - i), 2, INSN_OTHER, 0);
	is_int(all.used, 5000, "five thousand blocks");
	ok(make(KERNEL + 64, 2, INSN_OTHER, 0) ==
		   make(KERNEL + 64, 2, INSN_OTHER, 0),
	   "the same block is one record");
	is_int(all.used, 5000, "and adds none");
	make(KERNEL + 128, 2, INSN_OTHER, 0)->ran = true;
	make(KERNEL + 128, 2, INSN_JUMP, 0)->ran = true;
	make(KERNEL + 64, 2, INSN_OTHER, 0)->ran = true;
	make(KERNEL + 64, 2, INSN_OTHER, 0)->runs = 3;
	make(0x400000, 2, INSN_OTHER, 0)->ran = true;
	text = text_of(write_ran);
	is_text(text,
		"ffffffff81000040 ffffffff81000048\n"
		"ffffffff81000080 ffffffff81000088\n",
		"what ran of the kernel, in order, once");
	free(text);
	text = text_of(write_in_region);
	is_text(text, "ffffffff81000040 ffffffff81000048\n",
		"what ran in a region");
	free(text);
	text = text_of(write_runs);
	is_text(text, "ffffffff81000040 2 3\n", "and how often");
	free(text);
	blocks_free(&all);
}

static struct regions marked;

static int write_marked(FILE *to)
{
	return regions_write(&marked, to);
}

static void regions(void)
{
	struct counts now = { 0 };
	char *text;

	now.of[DOMAIN_KERNEL][COUNT_INSTRUCTIONS] = 100;
	regions_begin(&marked, 3, &now);
	now.of[DOMAIN_KERNEL][COUNT_INSTRUCTIONS] = 142;
	now.of[DOMAIN_USER][COUNT_L1I_MISSES] = 5;
	regions_end(&marked, &now);
	text = text_of(write_marked);
	is_text(text,
		"{\"format\": 1, \"unended\": 0, \"unbalanced\": 0, "
		"\"lost\": 0, \"regions\": [\n"
		"{\"marker\": 3, \"user\": {\"instructions\": 0, "
		"\"rep_iterations\": 0, \"branches\": 0, "
		"\"taken_branches\": 0, \"mispredictions\": 0, "
		"\"l1i_misses\": 5}, \"kernel\": {\"instructions\": 42, "
		"\"rep_iterations\": 0, \"branches\": 0, "
		"\"taken_branches\": 0, \"mispredictions\": 0, "
		"\"l1i_misses\": 0}}]}\n",
		"a region's record");
	free(text);

	regions_end(&marked, &now);
	is_int(marked.unbalanced, 1, "an end without a beginning");
	regions_begin(&marked, 4, &now);
	regions_begin(&marked, 5, &now);
	is_int(marked.unbalanced, 2, "a beginning inside of a region");
	is_int(marked.length, 3, "which begins all the same");
	text = text_of(write_marked);
	has_text(text, "\"unended\": 1", "a region that never ended");
	ok(!strstr(text, "\"marker\": 5"), "has no counts");
	free(text);
	regions_free(&marked);
}

int main(void)
{
	runs();
	repeats();
	traces();
	regions();
	return tap_end();
}
