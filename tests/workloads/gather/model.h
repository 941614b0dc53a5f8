/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What POSIX says that files hold: contents, open files with a position each,
 * descriptors. No system call is in here.
 */
#ifndef GATHER_MODEL_H
#define GATHER_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MODEL_MAX (256 * 1024)
#define MODEL_FILES 3
#define MODEL_DESCRIPTORS 8

struct content {
	unsigned char *bytes;
	size_t size;
	/* Of the last write: no look may change it. */
	int64_t modified;
};

/* What open() makes and dup() and fork() share. */
struct opened {
	struct content *content;
	size_t position;
	bool append;
	unsigned int users;
};

struct model {
	struct content *named[MODEL_FILES];
	struct opened *opened[MODEL_DESCRIPTORS];
};

struct content *content_new(void);
void content_write(struct content *content, size_t at, const void *data,
		   size_t count);
void content_resize(struct content *content, size_t size);
void content_zero(struct content *content, size_t at, size_t count);
/* The bytes at a place, at most count. */
size_t content_have(const struct content *content, size_t at, size_t count);

/* Writes at the position, or at the end with append, and moves it. */
void opened_write(struct opened *opened, const void *data, size_t count);

#endif
