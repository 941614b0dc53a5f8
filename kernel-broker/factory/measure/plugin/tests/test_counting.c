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
	is_int(kernel[COUNT_ITLB_MISSES], 2, "pages of the kernel");
	is_int(sum.of[DOMAIN_USER][COUNT_ITLB_MISSES], 1, "a page of the user");
	is_int(kernel[COUNT_L1D_MISSES], 0, "nobody told of data");
	free(core);
}

static void accesses(void)
{
	struct core *core = calloc(1, sizeof(*core));
	struct block *kernel = make(KERNEL, 10, INSN_CONDITIONAL, KERNEL);
	struct block *user = make(0x400000, 7, INSN_OTHER, 0);
	struct counts sum = { 0 };

	core_access(core, user, 0x7f0000000ff8, 8);
	core_access(core, kernel, 0x7f0000000ff0, 8); /* the user's memory */
	core_access(core, kernel, 0x7f0000000ffc, 8); /* and a page further */
	core_access(core, kernel, KERNEL + (1 << 20), 1);
	core_access(core, user, 0x7f0000001000, 1);
	core_sum(core, &sum);
	is_int(sum.of[DOMAIN_USER][COUNT_L1D_MISSES], 1, "the user's line");
	is_int(sum.of[DOMAIN_USER][COUNT_DTLB_MISSES], 1, "the user's page");
	is_int(sum.of[DOMAIN_KERNEL][COUNT_L1D_MISSES], 2,
	       "lines that the kernel used first");
	is_int(sum.of[DOMAIN_KERNEL][COUNT_DTLB_MISSES], 2, "and pages");
	is_int(sum.of[DOMAIN_KERNEL][COUNT_L1I_MISSES], 0, "data is not code");
	is_int(sum.of[DOMAIN_KERNEL][COUNT_ITLB_MISSES], 0, "nor its pages");
	free(core);
}

static struct block *string(uint64_t start, uint32_t n, uint8_t width)
{
	struct block like = {
		.start = start,
		.end = start + 4 * n,
		.last = start + 4 * (n - 1),
		.instructions = n,
		.kind = INSN_REP,
		.width = width,
	};

	return blocks_get(&all, &like);
}

/* One string instruction at the end of a block, and so many iterations. */
static void strings_of(uint8_t width, int iterations, struct counts *sum)
{
	struct core *core = calloc(1, sizeof(*core));
	uint64_t start = KERNEL + 12288 + 64 * width;
	struct block *again = string(start + 8, 1, width);

	core_run(core, string(start, 3, width));
	for (int i = 0; i < iterations; i++)
		core_run(core, again);
	core_run(core, make(start + 12, 2, INSN_OTHER, 0));
	memset(sum, 0, sizeof(*sum));
	core_sum(core, sum);
	free(core);
}

static void strings(void)
{
	const enum counter alike[] = { COUNT_INSTRUCTIONS, COUNT_STRINGS,
				       COUNT_STRING_BYTES };
	struct counts bytes, quads, none;

	strings_of(1, 64, &bytes);
	strings_of(8, 8, &quads);
	strings_of(8, 0, &none);
	for (size_t i = 0; i < sizeof(alike) / sizeof(alike[0]); i++)
		is_int(bytes.of[DOMAIN_KERNEL][alike[i]],
		       quads.of[DOMAIN_KERNEL][alike[i]],
		       "whatever the width: counter %d", alike[i]);
	is_int(quads.of[DOMAIN_KERNEL][COUNT_STRINGS], 1, "one begins");
	is_int(quads.of[DOMAIN_KERNEL][COUNT_STRING_BYTES], 64, "its bytes");
	is_int(quads.of[DOMAIN_USER][COUNT_STRING_BYTES], 0, "not the user's");
	is_int(none.of[DOMAIN_KERNEL][COUNT_STRINGS], 1, "it begins in vain");
	is_int(none.of[DOMAIN_KERNEL][COUNT_STRING_BYTES], 0, "and moves none");
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

static struct flow flow;

static int write_flow(FILE *to)
{
	const struct flow *flows[] = { &flow };

	return flow_write(flows, 1, to);
}

/* What ran in parts has the counts of what ran as one. */
static void parts(void)
{
	const uint64_t page = KERNEL + (1 << 16);
	struct block *next = make(page - 6, 2, INSN_OTHER, 0);
	struct block *callee = make(KERNEL, 1, INSN_OTHER, 0);
	struct core *core = calloc(1, sizeof(*core));
	struct counts sum = { 0 };
	char *text;
	struct block tail, body = {
		.start = page - 14,
		.end = page - 1,
		.last = page - 6,
		.instructions = 3,
		.target = KERNEL,
		.kind = INSN_JUMP,
	};
	struct block whole = body, early = body;

	early.last = page - 15;
	ok(!blocks_part(&early, page - 20, &tail), "ends in its page, surely");
	is_int(early.instructions, 3, "and stays as it is");
	early.last = page - 1;
	early.instructions = 1;
	ok(!blocks_part(&early, 0, &tail), "the first crosses and belongs");

	ok(blocks_part(&body, page - 10, &tail), "may go on in the next page");
	is_int(body.instructions, 2, "body: instructions");
	is_int(body.end, page - 6, "body: end");
	is_int(body.last, page - 10, "body: last instruction");
	is_int(body.kind, INSN_OTHER, "body: no jump");
	is_int(body.target, 0, "body: no target");
	is_int(tail.start, page - 6, "tail: start");
	is_int(tail.end, whole.end, "tail: end");
	is_int(tail.last, page - 6, "tail: last instruction");
	is_int(tail.instructions, 1, "tail: instructions");
	is_int(tail.kind, whole.kind, "tail: kind");
	is_int(tail.target, KERNEL, "tail: target");

	core->flow = &flow;
	core_run(core, blocks_get(&all, &body));
	core_run(core, next);
	core_sum(core, &sum);
	is_int(sum.of[DOMAIN_KERNEL][COUNT_INSTRUCTIONS], 4,
	       "the jump was taken out: it runs with what follows");
	is_int(sum.of[DOMAIN_KERNEL][COUNT_TAKEN_BRANCHES], 0, "not taken");
	core_run(core, blocks_get(&all, &body));
	core_run(core, blocks_get(&all, &tail));
	core_run(core, callee);
	memset(&sum, 0, sizeof(sum));
	core_sum(core, &sum);
	is_int(sum.of[DOMAIN_KERNEL][COUNT_INSTRUCTIONS], 8, "the jump ran");
	is_int(sum.of[DOMAIN_KERNEL][COUNT_TAKEN_BRANCHES], 1, "taken");
	text = text_of(write_flow);
	is_text(text,
		"2\n"
		"ffffffff8100fff2-ffffffff8100fffa:1\n"
		"ffffffff8100fff2-ffffffff8100fffe:1\n"
		"1\n"
		"ffffffff8100fffa->ffffffff81000000:1\n",
		"ranges go on over the parts");
	free(text);
	flow_free(&flow);
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

static void text_of_region(uint64_t region, uint64_t lines, uint64_t pages,
			   const char *what)
{
	struct text text = { 0 };

	is_int(blocks_text(&all, region, &text), 0, "%s: found", what);
	is_int(text.lines, lines, "%s: lines", what);
	is_int(text.pages, pages, "%s: pages", what);
}

static void texts(void)
{
	text_of_region(1, 0, 0, "no block at all");
	make(KERNEL + 60, 1, INSN_OTHER, 0)->region = 1;
	text_of_region(1, 1, 1, "up to the end of a line");
	make(KERNEL + 32, 9, INSN_OTHER, 0)->region = 1;
	text_of_region(1, 2, 1, "a block that holds another, and 4 bytes");
	make(KERNEL + 4092, 2, INSN_OTHER, 0)->region = 1;
	text_of_region(1, 4, 2, "a block in two pages");
	make(KERNEL + 4000, 64, INSN_OTHER, 0)->region = 1;
	text_of_region(1, 7, 2, "a longer one over it");
	make(0x400000, 7, INSN_OTHER, 0)->region = 1;
	text_of_region(1, 7, 2, "the user's code is not the kernel's");
	make(KERNEL + 8192, 7, INSN_OTHER, 0)->region = 2;
	text_of_region(1, 7, 2, "what ran in another region is not of it");
	text_of_region(2, 1, 1, "but of that one");
	make(KERNEL + 8192, 7, INSN_OTHER, 0)->region = 3;
	text_of_region(2, 0, 0, "a block knows its last region");
	blocks_free(&all);
}

static struct regions marked;

static int write_marked(FILE *to)
{
	return regions_write(&marked, to);
}

static void regions(void)
{
	const struct text none = { 0 }, some = { .lines = 7, .pages = 3 };
	struct counts now = { 0 };
	char *text;

	now.of[DOMAIN_KERNEL][COUNT_INSTRUCTIONS] = 100;
	regions_begin(&marked, 3, &now);
	now.of[DOMAIN_KERNEL][COUNT_INSTRUCTIONS] = 142;
	now.of[DOMAIN_USER][COUNT_L1I_MISSES] = 5;
	now.of[DOMAIN_USER][COUNT_L1D_MISSES] = 6;
	regions_end(&marked, &now, &some);
	text = text_of(write_marked);
	is_text(text,
		"{\"format\": 3, \"unended\": 0, \"unbalanced\": 0, "
		"\"lost\": 0, \"regions\": [\n"
		"{\"marker\": 3, \"user\": {\"instructions\": 0, "
		"\"rep_iterations\": 0, \"strings\": 0, "
		"\"string_bytes\": 0, \"branches\": 0, "
		"\"taken_branches\": 0, \"mispredictions\": 0, "
		"\"l1i_misses\": 5, \"itlb_misses\": 0}, \"kernel\": {\"instructions\": 42, "
		"\"rep_iterations\": 0, \"strings\": 0, "
		"\"string_bytes\": 0, \"branches\": 0, "
		"\"taken_branches\": 0, \"mispredictions\": 0, "
		"\"l1i_misses\": 0, \"itlb_misses\": 0}, "
		"\"text_lines\": 7, \"text_pages\": 3}]}\n",
		"a region's record");
	free(text);
	marked.data = true;
	text = text_of(write_marked);
	has_text(text,
		 "\"itlb_misses\": 0, \"l1d_misses\": 6, \"dtlb_misses\": 0}, "
		 "\"kernel\"",
		 "with data");
	free(text);

	regions_end(&marked, &now, &none);
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
	accesses();
	repeats();
	strings();
	parts();
	traces();
	texts();
	regions();
	return tap_end();
}
