/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
/*
 * Asks the broker about a profile, through "kernelctl profile check". It is
 * asked only when the snapshot does not say yes, and it may fail: then nobody
 * knows, and a submission is let through with a warning, because the broker
 * decides again when the job starts.
 */
#ifndef KERNEL_PROFILE_CHECKER_H
#define KERNEL_PROFILE_CHECKER_H

#include <stdbool.h>

#define CHECKER_TIMEOUT_MS 2000
#define CHECKER_REASON_SIZE 512

enum checker_answer {
	CHECKER_ACCEPTED, /* exit 0 */
	CHECKER_REFUSED,  /* exit 3: the reason is the broker's */
	CHECKER_UNKNOWN,  /* anything else: the reason says what went wrong */
};

/*
 * Asks whether a job may have the profile, and if "profiled" whether collectors
 * see anything on its kernel.
 * Runs the program without a shell, with nothing but its standard files open,
 * for CHECKER_TIMEOUT_MS at most. The reason is one printable line.
 */
enum checker_answer checker_ask(const char *program, const char *ref,
				bool profiled,
				char reason[CHECKER_REASON_SIZE]);

#endif
