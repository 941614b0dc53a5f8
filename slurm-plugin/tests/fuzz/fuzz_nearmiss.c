/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
#include <string.h>

#include "fuzz.h"
#include "submit/nearmiss.h"

/* Two names, one a line, and how far they are apart. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char names[2][REF_NAME_MAX + 1] = { { 0 } };
	size_t length[2] = { 0 };
	int which = 0;

	for (size_t i = 0; i < size; i++) {
		if (data[i] == '\n' && which == 0)
			which = 1;
		else if (data[i] != '\0' && length[which] < REF_NAME_MAX)
			names[which][length[which]++] = (char)data[i];
	}
	size_t apart = nearmiss_distance(names[0], names[1]);
	size_t longer = length[0] > length[1] ? length[0] : length[1];
	size_t shorter = length[0] + length[1] - longer;

	REQUIRE((apart == 0) == (strcmp(names[0], names[1]) == 0));
	REQUIRE(apart == nearmiss_distance(names[1], names[0]));
	REQUIRE(apart <= longer && apart >= longer - shorter);
	/* One letter more at the end of one of them is one change more at most. */
	if (length[0] < REF_NAME_MAX) {
		names[0][length[0]] = 'x';
		size_t more = nearmiss_distance(names[0], names[1]);

		REQUIRE(more <= apart + 1 && apart <= more + 1);
	}
	return 0;
}
