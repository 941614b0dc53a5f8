/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "wish.h"

/* What is accepted must come out as it went in. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);
	char again[WISH_TEXT_SIZE];
	struct wish wish;

	if (size)
		memcpy(text, data, size);
	text[size] = '\0';
	if (wish_parse(text, &wish) == WISH_OK) {
		wish_format(&wish, again);
		REQUIRE(strcmp(text, again) == 0);
		REQUIRE(wish_agree(&wish, &wish));
	}
	free(text);
	return 0;
}
