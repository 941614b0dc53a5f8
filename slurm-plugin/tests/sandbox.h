/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
/*
 * A folder of its own for each test program, and a node in it: procfs, sysfs
 * and node.state as the plugin would find them.
 */
#ifndef KERNEL_PROFILE_SANDBOX_H
#define KERNEL_PROFILE_SANDBOX_H

#include <stddef.h>

#define SANDBOX_BOOT_ID "8ad0c5a4-1111-2222-3333-444455556666"
#define SANDBOX_BUILD_ID "5f0c00112233445566778899aabbccddeeff0011"
#define SANDBOX_RELEASE "6.1.192-mitgcm"
#define SANDBOX_TOKEN "kernelbroker.token=0123456789abcdef0123456789abcdef"

/* Makes the folder, and has it removed at exit. */
void sandbox_make(void);

/* The path of a file in it; valid until the 8th call from now. */
const char *sandbox_path(const char *name);

void sandbox_write(const char *name, const char *text);
void sandbox_write_bytes(const char *name, const void *data, size_t size);
/* An executable file. */
void sandbox_program(const char *name, const char *text);
void sandbox_remove(const char *name);

/* A node that runs SANDBOX_RELEASE with that command line. */
void sandbox_node(const char *cmdline);
/* Its node.state: of this boot and build, with the rest as given. */
/* Adds to node.state the jobs whose kernel the node has lost. */
void sandbox_lost(const char *jobs);
void sandbox_state(const char *profile, int version, const char *jobs,
		   int attested);

/* Plugin arguments that lead to all of this; returns how many. */
int sandbox_args(char **argv[]);

#endif
