/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "node/cores.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	cpu_set_t cpus;
	char *line = malloc(size + 1);

	if (!line)
		return 0;
	if (size)
		memcpy(line, data, size);
	line[size] = '\0';
	if (cores_parse(line, &cpus)) {
		REQUIRE(CPU_COUNT(&cpus) > 0);
		REQUIRE(strstr(line, "kernelbroker.system_cpus="));
	}
	free(line);
	return 0;
}
