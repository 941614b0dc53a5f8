/* Small mixing functions: a digest of bytes and a stream of numbers. */
#ifndef DIGEST_H
#define DIGEST_H

#include <stddef.h>
#include <stdint.h>

#define DIGEST_START UINT64_C(0xcbf29ce484222325)

/* FNV-1a over more bytes: any order or value that differs shows. */
static inline uint64_t digest_add(uint64_t digest, const void *data,
				  size_t size)
{
	const unsigned char *bytes = data;

	for (size_t i = 0; i < size; i++)
		digest = (digest ^ bytes[i]) * UINT64_C(0x100000001b3);
	return digest;
}

/* The next number of the stream (splitmix64). */
static inline uint64_t mix64(uint64_t *state)
{
	uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

#endif
