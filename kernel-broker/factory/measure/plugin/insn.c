#include "insn.h"

static bool is_rex(uint8_t byte)
{
	return (byte & 0xf0) == 0x40;
}

static bool is_prefix(uint8_t byte)
{
	switch (byte) {
	case 0x26: /* segments */
	case 0x2e:
	case 0x36:
	case 0x3e:
	case 0x64:
	case 0x65:
	case 0x66: /* sizes */
	case 0x67:
	case 0xf0: /* lock, repeat */
	case 0xf2:
	case 0xf3:
		return true;
	}
	return is_rex(byte);
}

static bool is_port(uint8_t opcode)
{
	return opcode >= 0x6c && opcode <= 0x6f;
}

static bool is_string(uint8_t opcode)
{
	return (opcode >= 0xa4 && opcode <= 0xa7) ||
	       (opcode >= 0xaa && opcode <= 0xaf) || is_port(opcode);
}

/* The last bit of the opcode says whether elements are bytes. */
static uint8_t width_of(uint8_t opcode, bool short_operand, uint8_t rex)
{
	if (!(opcode & 1))
		return 1;
	if (rex & 0x08 && !is_port(opcode))
		return 8;
	return short_operand ? 2 : 4;
}

static bool is_jump(uint8_t opcode, uint8_t modrm)
{
	unsigned int operation = (modrm >> 3) & 7;

	switch (opcode) {
	case 0xe8: /* call */
	case 0xe9: /* jmp */
	case 0xeb:
	case 0xc2: /* ret */
	case 0xc3:
	case 0xca:
	case 0xcb:
		return true;
	case 0xff: /* call and jmp through a register or memory */
		return operation >= 2 && operation <= 5;
	}
	return false;
}

static uint64_t relative(const uint8_t *bytes, size_t size, size_t width,
			 uint64_t address)
{
	uint64_t distance = 0;

	for (size_t i = 0; i < width; i++)
		distance |= (uint64_t)bytes[size - width + i] << (8 * i);
	if (bytes[size - 1] & 0x80)
		distance |= ~UINT64_C(0) << (8 * width);
	return address + size + distance;
}

struct insn insn_read(const uint8_t *bytes, size_t size, uint64_t address)
{
	struct insn insn = { .kind = INSN_OTHER };
	bool repeat = false, short_operand = false;
	uint8_t rex = 0;
	size_t i = 0;

	for (; i < size && is_prefix(bytes[i]); i++) {
		repeat |= bytes[i] == 0xf2 || bytes[i] == 0xf3;
		short_operand |= bytes[i] == 0x66;
		/* One with another prefix behind it has no effect. */
		rex = is_rex(bytes[i]) ? bytes[i] : 0;
	}
	if (i >= size)
		return insn;

	uint8_t opcode = bytes[i];
	uint8_t next = i + 1 < size ? bytes[i + 1] : 0;

	if ((opcode >= 0x70 && opcode <= 0x7f) ||
	    (opcode >= 0xe0 && opcode <= 0xe3)) {
		insn.kind = INSN_CONDITIONAL;
		insn.target = relative(bytes, size, 1, address);
	} else if (opcode == 0x0f && next >= 0x80 && next <= 0x8f &&
		   size >= i + 6) {
		insn.kind = INSN_CONDITIONAL;
		insn.target = relative(bytes, size, 4, address);
	} else if (is_jump(opcode, next)) {
		insn.kind = INSN_JUMP;
		if (opcode == 0xeb)
			insn.target = relative(bytes, size, 1, address);
		else if ((opcode == 0xe8 || opcode == 0xe9) && size >= i + 5)
			insn.target = relative(bytes, size, 4, address);
	} else if (repeat && is_string(opcode)) {
		insn.kind = INSN_REP;
		insn.width = width_of(opcode, short_operand, rex);
	}
	return insn;
}

bool insn_is_marker(const uint8_t *bytes, size_t size, uint32_t *number)
{
	if (size != 7 || bytes[0] != 0x0f || bytes[1] != 0x1f ||
	    bytes[2] != 0x80)
		return false;

	uint32_t operand = (uint32_t)bytes[3] | (uint32_t)bytes[4] << 8 |
			   (uint32_t)bytes[5] << 16 | (uint32_t)bytes[6] << 24;

	if (operand < MARKER_BASE || operand - MARKER_BASE > MARKER_LAST)
		return false;
	*number = operand - MARKER_BASE;
	return true;
}
