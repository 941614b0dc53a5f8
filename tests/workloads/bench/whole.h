/* Moving all of a block, however little a call moves. */
#ifndef BENCH_WHOLE_H
#define BENCH_WHOLE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

bool whole(int fd, void *memory, size_t size,
	   ssize_t (*move)(int, void *, size_t));

#endif
