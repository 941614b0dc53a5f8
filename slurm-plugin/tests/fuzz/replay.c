/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
/*
 * Runs a fuzz target over its seeds, each whole and cut at every length, so
 * that any compiler can replay them where libFuzzer is not at hand.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"

/* A heap copy of the very size: a sanitizer sees a step beyond its end. */
static void run(const uint8_t *data, size_t size)
{
	uint8_t *copy = malloc(size ? size : 1);

	if (size)
		memcpy(copy, data, size);
	LLVMFuzzerTestOneInput(copy, size);
	free(copy);
}

int main(int argc, char *argv[])
{
	static uint8_t data[65536];
	int seeds = 0;

	for (int i = 1; i < argc; i++) {
		FILE *file = fopen(argv[i], "r");
		size_t size;

		if (!file) {
			perror(argv[i]);
			return 1;
		}
		size = fread(data, 1, sizeof(data), file);
		fclose(file);
		for (size_t part = 0; part <= size; part++)
			run(data, part);
		seeds++;
	}
	printf("%sok 1 - %d seeds replayed\n1..1\n", seeds ? "" : "not ",
	       seeds);
	return seeds ? 0 : 1;
}
