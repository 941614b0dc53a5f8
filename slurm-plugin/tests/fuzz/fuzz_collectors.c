/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
#include <stdlib.h>
#include <string.h>

#include "submit/collectors.h"
#include "fuzz.h"

/* What is accepted must, written out, be accepted as the same. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);
	char again[COLLECTORS_TEXT_SIZE];
	unsigned int set, second;
	const char *bad;
	size_t length;

	if (size)
		memcpy(text, data, size);
	text[size] = '\0';
	if (collectors_parse(text, &set, &bad, &length)) {
		collectors_format(set, again);
		REQUIRE(strlen(again) < sizeof(again));
		REQUIRE(collectors_parse(again, &second, &bad, &length));
		REQUIRE(set == second);
	} else {
		REQUIRE(bad >= text && bad + length <= text + size);
	}
	free(text);
	return 0;
}
