/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
/*
 * What the running kernel says about itself. node.state is believed only as
 * far as it agrees with this.
 */
#ifndef KERNEL_PROFILE_KERNEL_H
#define KERNEL_PROFILE_KERNEL_H

#include <stdbool.h>
#include <stddef.h>

#include "node/nodestate.h"

/* Each text is empty where the kernel does not tell. */
struct kernel {
	char boot_id[BOOT_ID_LENGTH + 1];
	char build_id[BUILD_ID_MAX + 1];
	char release[RELEASE_MAX + 1];
	/* The command line has the broker's token, or cannot be read. */
	bool booted_by_broker;
};

void kernel_read(const char *proc, const char *sys, struct kernel *kernel);

/*
 * Finds the GNU build id in a block of ELF notes and writes it as lower-case
 * hex. The buffer has BUILD_ID_MAX + 1 bytes.
 */
bool kernel_parse_notes(const char *notes, size_t size, char *build_id);

/* Whether one of the command line's words gives kernelbroker.token. */
bool kernel_parse_cmdline(const char *cmdline);

#endif
