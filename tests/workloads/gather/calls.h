/* SPDX-License-Identifier: Apache-2.0 */
/* System calls that end the program when they fail. */
#ifndef GATHER_CALLS_H
#define GATHER_CALLS_H

#include <stddef.h>
#include <sys/types.h>

int open_or_fail(const char *path, int flags);
void write_or_fail(int fd, const void *data, size_t count);
size_t size_of(int fd);
/* Of a child that has to end with 0. */
void wait_for(pid_t child);
pid_t fork_or_fail(void);

/* What a call that returned 0 or -1 says: "ok" or its error. */
const char *said(int result);

#endif
