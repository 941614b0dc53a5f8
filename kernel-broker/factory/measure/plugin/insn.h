/* What an x86 instruction at the end of a block does to the flow of control. */
#ifndef KBCOUNT_INSN_H
#define KBCOUNT_INSN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum insn_kind {
	INSN_OTHER,       /* goes on behind itself, or leaves by a trap */
	INSN_CONDITIONAL, /* goes to its target or on */
	INSN_JUMP,        /* jumps, calls, returns: always goes elsewhere */
	INSN_REP,         /* a string instruction that repeats itself */
};

struct insn {
	enum insn_kind kind;
	uint64_t target; /* of a branch that names it, else 0 */
	uint8_t width;   /* bytes that INSN_REP moves each time, else 0 */
};

struct insn insn_read(const uint8_t *bytes, size_t size, uint64_t address);

/* An instruction has at most so many bytes. */
#define INSN_LONGEST 15

/*
 * A marker is a "nopl disp32(%rax)": it does nothing on any processor, and no
 * compiler writes one with such an operand. The number is 0 at the end of a
 * region, else it begins the region of that number.
 */
#define MARKER_BASE UINT32_C(0x7ab00000)
#define MARKER_LAST UINT32_C(0xffff)

bool insn_is_marker(const uint8_t *bytes, size_t size, uint32_t *number);

#endif
