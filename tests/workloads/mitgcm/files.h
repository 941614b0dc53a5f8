/* Names of the files, and calls that count themselves. */
#ifndef FILES_H
#define FILES_H

#include "replay.h"

bool name_bin(const struct replay *replay, unsigned int bin, char *path);
bool name_param(const struct replay *replay, char *path);
bool name_log(const struct replay *replay, char *path);
/* suffix is "data" or "meta" */
bool name_field(const struct replay *replay, unsigned int field,
		unsigned int tile, const char *suffix, char *path);

/* A new file; one that exists already is an error. -1 after a message. */
int file_create(const char *path);
int file_open(const char *path);
bool file_close(int fd, const char *path);

/* One call each: anything but the whole size is an error. */
bool file_write(int fd, const void *data, size_t size, struct totals *count,
		struct written *written, const char *path);
bool file_read(int fd, void *data, size_t size, struct totals *count,
	       const char *path);
bool file_seek(int fd, uint64_t offset, struct totals *count, const char *path);

/* Write without counting, by another system call than the model's. */
bool file_fill(int fd, const void *data, size_t size, uint64_t offset,
	       const char *path);

/* Size and digest of a file, read through a mapping: no read calls. */
bool file_digest(const char *path, struct written *found);

/* Print a message to standard error; returns false. */
__attribute__((format(printf, 1, 2))) bool complain(const char *format, ...);

#endif
