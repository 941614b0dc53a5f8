/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
/*
 * The least that a test program needs to speak TAP. Each program includes
 * this once, runs its checks and ends with "return tap_end();".
 */
#ifndef KERNEL_PROFILE_TAP_H
#define KERNEL_PROFILE_TAP_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static int tap_tests;
static int tap_failed;

__attribute__((format(printf, 2, 3))) static bool ok(bool passed,
						     const char *format, ...)
{
	va_list args;

	printf("%sok %d - ", passed ? "" : "not ", ++tap_tests);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
	fflush(stdout);
	if (!passed)
		tap_failed++;
	return passed;
}

#define is_text(got, want, ...)                                         \
	do {                                                            \
		const char *got_ = (got), *want_ = (want);              \
		bool same_ = got_ && want_ ? strcmp(got_, want_) == 0 : \
					     got_ == want_;             \
		if (!ok(same_, __VA_ARGS__))                            \
			printf("#  got: %s\n# want: %s\n",              \
			       got_ ? got_ : "(null)",                  \
			       want_ ? want_ : "(null)");               \
	} while (0)

#define has_text(got, part, ...)                                               \
	do {                                                                   \
		const char *got_ = (got), *part_ = (part);                     \
		if (!ok(strstr(got_, part_) != NULL, __VA_ARGS__))             \
			printf("#  got: %s\n# want: ...%s...\n", got_, part_); \
	} while (0)

#define is_int(got, want, ...)                                             \
	do {                                                               \
		long got_ = (long)(got), want_ = (long)(want);             \
		if (!ok(got_ == want_, __VA_ARGS__))                       \
			printf("#  got: %ld\n# want: %ld\n", got_, want_); \
	} while (0)

static inline int tap_end(void)
{
	printf("1..%d\n", tap_tests);
	return tap_failed ? 1 : 0;
}

#endif
