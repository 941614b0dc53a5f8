/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
/* What each fuzz target defines, for libFuzzer and for replay.c. */
#ifndef KERNEL_PROFILE_FUZZ_H
#define KERNEL_PROFILE_FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define REQUIRE(truth)                    \
	do {                              \
		if (!(truth))             \
			__builtin_trap(); \
	} while (0)

#endif
