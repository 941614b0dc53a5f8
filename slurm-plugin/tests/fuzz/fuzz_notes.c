/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
#include <string.h>

#include "fuzz.h"
#include "node/kernel.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char id[BUILD_ID_MAX + 1];

	if (kernel_parse_notes((const char *)data, size, id)) {
		REQUIRE(*id && strlen(id) <= BUILD_ID_MAX);
		REQUIRE(strspn(id, "0123456789abcdef") == strlen(id));
	}
	return 0;
}
