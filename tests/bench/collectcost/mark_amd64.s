// SPDX-License-Identifier: Apache-2.0

#include "textflag.h"

// A no-operation whose operand is 0x7ab00000 and the number of the region; 0
// ends it. See tests/workloads/bench/mark.h.
#define MARK(number) BYTE $0x0f; BYTE $0x1f; BYTE $0x80; LONG $(0x7ab00000 + number)

TEXT ·markEnd(SB), NOSPLIT, $0-0
	MARK(0)
	RET

TEXT ·markStart(SB), NOSPLIT, $0-0
	MARK(2)
	RET

TEXT ·markJob(SB), NOSPLIT, $0-0
	MARK(3)
	RET

TEXT ·markStop(SB), NOSPLIT, $0-0
	MARK(4)
	RET
