/* Instructions as an assembler writes them. */
#include "insn.h"
#include "tap.h"

struct sample {
	const char *name;
	uint8_t bytes[15];
	size_t size;
	enum insn_kind kind;
	uint64_t target;
};

static const struct sample samples[] = {
	{ "nop", { 0x90 }, 1, INSN_OTHER, 0 },
	{ "mov", { 0x48, 0x89, 0xe5 }, 3, INSN_OTHER, 0 },
	{ "syscall", { 0x0f, 0x05 }, 2, INSN_OTHER, 0 },
	{ "iretq", { 0x48, 0xcf }, 2, INSN_OTHER, 0 },
	{ "je +0x10", { 0x74, 0x10 }, 2, INSN_CONDITIONAL, 0x1012 },
	{ "jne -2", { 0x75, 0xfe }, 2, INSN_CONDITIONAL, 0x1000 },
	{ "loop -4", { 0xe2, 0xfc }, 2, INSN_CONDITIONAL, 0xffe },
	{ "jae +0x100",
	  { 0x0f, 0x83, 0x00, 0x01, 0x00, 0x00 },
	  6,
	  INSN_CONDITIONAL,
	  0x1106 },
	{ "js -6",
	  { 0x0f, 0x88, 0xfa, 0xff, 0xff, 0xff },
	  6,
	  INSN_CONDITIONAL,
	  0x1000 },
	{ "bnd je", { 0xf2, 0x74, 0x01 }, 3, INSN_CONDITIONAL, 0x1004 },
	{ "cut je", { 0x0f, 0x84, 0x00 }, 3, INSN_OTHER, 0 },
	{ "call", { 0xe8, 1, 2, 3, 4 }, 5, INSN_JUMP, 0x04031206 },
	{ "jmp", { 0xeb, 0x00 }, 2, INSN_JUMP, 0x1002 },
	{ "jmp -5", { 0xe9, 0xfb, 0xff, 0xff, 0xff }, 5, INSN_JUMP, 0x1000 },
	{ "ret", { 0xc3 }, 1, INSN_JUMP, 0 },
	{ "rep ret", { 0xf3, 0xc3 }, 2, INSN_JUMP, 0 },
	{ "call *%rax", { 0xff, 0xd0 }, 2, INSN_JUMP, 0 },
	{ "jmp *%r8", { 0x41, 0xff, 0xe0 }, 3, INSN_JUMP, 0 },
	{ "incl (%rax)", { 0xff, 0x00 }, 2, INSN_OTHER, 0 },
	{ "push (%rax)", { 0xff, 0x30 }, 2, INSN_OTHER, 0 },
	{ "rep movsb", { 0xf3, 0xa4 }, 2, INSN_REP, 0 },
	{ "rep stosq", { 0xf3, 0x48, 0xab }, 3, INSN_REP, 0 },
	{ "repne scasb", { 0xf2, 0xae }, 2, INSN_REP, 0 },
	{ "movsb", { 0xa4 }, 1, INSN_OTHER, 0 },
	{ "pause", { 0xf3, 0x90 }, 2, INSN_OTHER, 0 },
	{ "prefixes alone", { 0x66, 0x66 }, 2, INSN_OTHER, 0 },
	{ "nothing", { 0 }, 0, INSN_OTHER, 0 },
};

static void widths(void)
{
	static const struct {
		const char *name;
		uint8_t bytes[4];
		size_t size;
		enum insn_kind kind;
		uint8_t width;
	} strings[] = {
		{ "rep movsb", { 0xf3, 0xa4 }, 2, INSN_REP, 1 },
		{ "rep movsw", { 0x66, 0xf3, 0xa5 }, 3, INSN_REP, 2 },
		{ "rep movsl", { 0xf3, 0xa5 }, 2, INSN_REP, 4 },
		{ "rep movsq", { 0xf3, 0x48, 0xa5 }, 3, INSN_REP, 8 },
		{ "66 stosq", { 0xf3, 0x66, 0x48, 0xab }, 4, INSN_REP, 8 },
		{ "REX.B stosl", { 0xf3, 0x41, 0xab }, 3, INSN_REP, 4 },
		{ "REX.W stosb", { 0xf3, 0x48, 0xaa }, 3, INSN_REP, 1 },
		{ "REX.W first", { 0x48, 0xf3, 0xab }, 3, INSN_REP, 4 },
		{ "repne scasb", { 0xf2, 0xae }, 2, INSN_REP, 1 },
		{ "repe cmpsq", { 0xf3, 0x48, 0xa7 }, 3, INSN_REP, 8 },
		{ "rep lodsw", { 0xf3, 0x66, 0xad }, 3, INSN_REP, 2 },
		{ "rep insb", { 0xf3, 0x6c }, 2, INSN_REP, 1 },
		{ "REX.W outsl", { 0xf3, 0x48, 0x6f }, 3, INSN_REP, 4 },
		{ "stosq", { 0x48, 0xab }, 2, INSN_OTHER, 0 },
		{ "cut rep stosq", { 0xf3, 0x48 }, 2, INSN_OTHER, 0 },
		{ "ret", { 0xc3 }, 1, INSN_JUMP, 0 },
	};

	for (size_t i = 0; i < sizeof(strings) / sizeof(strings[0]); i++) {
		struct insn got =
			insn_read(strings[i].bytes, strings[i].size, 0x1000);

		is_int(got.kind, strings[i].kind, "%s: kind", strings[i].name);
		is_int(got.width, strings[i].width, "%s: width",
		       strings[i].name);
	}
}

static void markers(void)
{
	uint8_t begin[] = { 0x0f, 0x1f, 0x80, 0x2a, 0x00, 0xb0, 0x7a };
	uint8_t below[] = { 0x0f, 0x1f, 0x80, 0xff, 0xff, 0xaf, 0x7a };
	uint8_t above[] = { 0x0f, 0x1f, 0x80, 0x00, 0x00, 0xb1, 0x7a };
	uint8_t padding[] = { 0x0f, 0x1f, 0x80, 0, 0, 0, 0 };
	uint32_t number = 7;

	ok(insn_is_marker(begin, 7, &number), "a marker");
	is_int(number, 42, "its number");
	begin[3] = 0;
	ok(insn_is_marker(begin, 7, &number) && number == 0, "the end marker");
	ok(!insn_is_marker(begin, 6, &number), "one byte short");
	ok(!insn_is_marker(below, 7, &number), "an operand below");
	ok(!insn_is_marker(above, 7, &number), "an operand above");
	ok(!insn_is_marker(padding, 7, &number), "a compiler's padding");
	begin[2] = 0x81;
	ok(!insn_is_marker(begin, 7, &number), "another register");
}

int main(void)
{
	for (size_t i = 0; i < sizeof(samples) / sizeof(samples[0]); i++) {
		const struct sample *s = &samples[i];
		struct insn got = insn_read(s->bytes, s->size, 0x1000);

		is_int(got.kind, s->kind, "%s: kind", s->name);
		is_int(got.target, s->target, "%s: target", s->name);
	}
	widths();
	markers();
	return tap_end();
}
