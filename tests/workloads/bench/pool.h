/*
 * The files of one Postmark process: which exist, how long they are, and what
 * is in them, so that every read can be checked.
 */
#ifndef BENCH_POOL_H
#define BENCH_POOL_H

#include <stdint.h>

enum { POOL_SIZE = 100, POOL_LONGEST = 65536 };

struct pool {
	char dir[4096];
	unsigned int room;
	uint32_t *lengths; /* of file i; 0 is no file */
	unsigned int files;
	uint64_t seed;
	uint64_t chance;
};

void pool_open(struct pool *pool, const char *dir, unsigned int number,
	       unsigned int files, uint64_t seed);

/* The first files; one transaction; the end of all that are left. */
void pool_fill(struct pool *pool);
void pool_transact(struct pool *pool);
void pool_empty(struct pool *pool);

/* Removes the folder, which has to be empty. */
void pool_close(struct pool *pool);

#endif
