/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "common/ref.h"

/* What is accepted must come out as it went in. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);
	char again[REF_TEXT_SIZE];
	struct ref ref;

	if (size)
		memcpy(text, data, size);
	text[size] = '\0';
	if (ref_parse(text, &ref) == REF_OK) {
		ref_format(&ref, again);
		REQUIRE(strcmp(text, again) == 0);
		REQUIRE(ref_agree(&ref, &ref));
	}
	free(text);
	return 0;
}
