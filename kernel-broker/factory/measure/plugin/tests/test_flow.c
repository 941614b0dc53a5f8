/* A made-up run, block by block, and the record of its branches. */
#include <errno.h>
#include <stdlib.h>

#include "blocks.h"
#include "core.h"
#include "flow.h"
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

static char *text_of(const struct flow *const *flows, size_t n)
{
	char *text = NULL;
	size_t size;
	FILE *to = open_memstream(&text, &size);

	is_int(flow_write(flows, n, to), 0, "written");
	fclose(to);
	return text;
}

static struct core *new_core(struct flow *flow)
{
	struct core *core = calloc(1, sizeof(*core));

	core->flow = flow;
	return core;
}

static void branches(void)
{
	struct flow flow = { 0 };
	const struct flow *flows[] = { &flow };
	struct core *core = new_core(&flow);
	struct block *user = make(0x400000, 7, INSN_JUMP, 0);
	struct block *entry = make(KERNEL, 2, INSN_OTHER, 0);
	struct block *loop = make(KERNEL + 8, 10, INSN_CONDITIONAL, KERNEL + 8);
	struct block *leave = make(KERNEL + 48, 3, INSN_JUMP, 0);
	char *text;

	core_run(core, user);
	core_run(core, entry); /* goes on */
	core_run(core, loop);  /* taken */
	core_run(core, loop);  /* taken */
	core_run(core, loop);  /* not taken */
	core_run(core, leave); /* back to the user */
	core_run(core, user);
	text = text_of(flows, 1);
	is_text(text,
		"3\n"
		"ffffffff81000000-ffffffff8100002c:1\n"
		"ffffffff81000008-ffffffff8100002c:1\n"
		"ffffffff81000008-ffffffff81000038:1\n"
		"1\n"
		"ffffffff8100002c->ffffffff81000008:2\n",
		"a loop of three rounds");
	free(text);
	free(core);
	flow_free(&flow);
}

static void interrupts(void)
{
	struct flow flow = { 0 };
	const struct flow *flows[] = { &flow };
	struct core *core = new_core(&flow);
	struct block *plain = make(KERNEL + 512, 4, INSN_OTHER, 0);
	struct block *call = make(KERNEL + 528, 1, INSN_JUMP, KERNEL + 1024);
	struct block *callee = make(KERNEL + 1024, 2, INSN_JUMP, 0);
	struct block *timer = make(KERNEL + 4096, 5, INSN_JUMP, 0);
	char *text;

	core_run(core, plain);
	core_run(core, timer); /* no branch led here */
	core_run(core, call);  /* the timer returns */
	core_run(core, timer); /* nor here: the call leads elsewhere */
	core_run(core, callee);
	text = text_of(flows, 1);
	is_text(text,
		"3\n"
		"ffffffff81000200-ffffffff8100020c:1\n"
		"ffffffff81000210-ffffffff81000210:1\n"
		"ffffffff81001000-ffffffff81001010:2\n"
		"2\n"
		"ffffffff81001010->ffffffff81000210:1\n"
		"ffffffff81001010->ffffffff81000400:1\n",
		"an interrupt is no branch, its return is one");
	free(text);
	free(core);
	flow_free(&flow);
}

/* An indirect call and a return, as code under mitigations makes them. */
static void thunks(void)
{
	struct flow flow = {
		.thunks_begin = KERNEL + 0x9000,
		.thunks_end = KERNEL + 0xa000,
	};
	const struct flow *flows[] = { &flow };
	struct core *core = new_core(&flow);
	struct block *site =
		make(KERNEL + 0x100, 3, INSN_JUMP, KERNEL + 0x9000);
	struct block *call =
		make(KERNEL + 0x9000, 1, INSN_JUMP, KERNEL + 0x9010);
	struct block *push = make(KERNEL + 0x9010, 2, INSN_JUMP, 0);
	struct block *callee =
		make(KERNEL + 0x200, 4, INSN_JUMP, KERNEL + 0x9ff0);
	struct block *leaves = make(KERNEL + 0x9ff0, 1, INSN_JUMP, 0);
	struct block *back = make(KERNEL + 0x10c, 2, INSN_JUMP, 0);
	struct block *timer = make(KERNEL + 0x1000, 5, INSN_JUMP, 0);
	struct block *user = make(0x400000, 7, INSN_JUMP, 0);
	char *text;

	core_run(core, site);
	core_run(core, call);
	core_run(core, push);
	core_run(core, callee);
	core_run(core, leaves);
	core_run(core, back);
	core_run(core, user);
	core_run(core, leaves); /* from nowhere */
	core_run(core, user);
	core_run(core, site);
	core_run(core, call);
	core_run(core, timer); /* no call led here */
	core_run(core, user);
	text = text_of(flows, 1);
	is_text(text,
		"4\n"
		"ffffffff81000100-ffffffff81000108:2\n"
		"ffffffff8100010c-ffffffff81000110:1\n"
		"ffffffff81000200-ffffffff8100020c:1\n"
		"ffffffff81001000-ffffffff81001010:1\n"
		"2\n"
		"ffffffff81000108->ffffffff81000200:1\n"
		"ffffffff8100020c->ffffffff8100010c:1\n",
		"a branch through a thunk is one from caller to callee");
	free(text);
	free(core);
	flow_free(&flow);
}

static void copies(void)
{
	struct flow flow = { 0 };
	const struct flow *flows[] = { &flow };
	struct core *core = new_core(&flow);
	struct block *copy = make(KERNEL + 8192, 4, INSN_REP, 0);
	struct block *again = make(KERNEL + 8192 + 12, 1, INSN_REP, 0);
	struct block *after = make(KERNEL + 8192 + 16, 2, INSN_JUMP, 0);
	struct block *user = make(0x400000, 7, INSN_JUMP, 0);
	char *text;

	core_run(core, copy);
	for (int i = 0; i < 99; i++)
		core_run(core, again);
	core_run(core, after);
	core_run(core, user);
	text = text_of(flows, 1);
	is_text(text,
		"1\n"
		"ffffffff81002000-ffffffff81002014:1\n"
		"0\n",
		"a string instruction goes on behind itself");
	free(text);
	free(core);
	flow_free(&flow);
}

static void processors(void)
{
	struct flow one = { 0 }, other = { 0 };
	const struct flow *flows[] = { &one, &other };
	struct block *block = make(KERNEL + 64, 2, INSN_JUMP, 0);
	struct block *next = make(KERNEL + 128, 2, INSN_JUMP, 0);
	char *text;

	for (int i = 0; i < 3; i++)
		flow_run(&one, i ? block : NULL, block);
	flow_run(&other, NULL, block);
	flow_run(&other, block, block);
	flow_run(&other, block, next);
	text = text_of(flows, 2);
	is_text(text,
		"1\n"
		"ffffffff81000040-ffffffff81000044:4\n"
		"2\n"
		"ffffffff81000044->ffffffff81000040:3\n"
		"ffffffff81000044->ffffffff81000080:1\n",
		"what both saw is added up");
	free(text);
	for (uint64_t i = 0; i < 20000; i++) {
		struct block a = *block, b = *next;

		a.last = KERNEL + 8 * i;
		b.start = KERNEL + 16 * i;
		flow_run(&one, &a, &b);
	}
	is_int(one.branches.used, 20001, "twenty thousand more");
	one.lost = true;
	errno = 0;
	is_int(flow_write(flows, 2, stdout), -1, "a record with holes is none");
	is_int(errno, ENOMEM, "and says why");
	flow_free(&one);
	flow_free(&other);
}

int main(void)
{
	branches();
	interrupts();
	thunks();
	copies();
	processors();
	blocks_free(&all);
	return tap_end();
}
