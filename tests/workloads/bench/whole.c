#include "whole.h"

bool whole(int fd, void *memory, size_t size,
	   ssize_t (*move)(int, void *, size_t))
{
	char *at = memory;

	while (size > 0) {
		ssize_t n = move(fd, at, size);

		if (n <= 0)
			return false;
		at += n;
		size -= (size_t)n;
	}
	return true;
}
