/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
#include <string.h>

#include "fuzz.h"
#include "common/settings.h"

#define WORDS_MAX 8
#define TEXT_MAX 4096

/* The words of plugstack.conf, one a line: every setting is absolute. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const keys[] = { "snapshot=", "kernelctl=",
					    "node_state=", "proc=", "sys=" };
	char text[TEXT_MAX + 1];
	char *argv[WORDS_MAX];
	struct settings s;
	int argc = 0;
	int wrong = 0;

	if (size > TEXT_MAX)
		return 0;
	if (size)
		memcpy(text, data, size);
	text[size] = '\0';
	for (char *rest = text; rest && argc < WORDS_MAX; argc++) {
		char *end = strchr(rest, '\n');

		argv[argc] = rest;
		if (end)
			*end++ = '\0';
		rest = end;
	}
	REQUIRE(settings_parse(0, NULL, &s) == 0);
	int rc = settings_parse(argc, argv, &s);
	const char *values[] = { s.snapshot, s.kernelctl, s.node_state, s.proc,
				 s.sys };

	for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]); k++)
		REQUIRE(values[k] && values[k][0] == '/');
	for (int i = 0; i < argc; i++) {
		size_t k = 0;

		while (k < sizeof(keys) / sizeof(keys[0]) &&
		       strncmp(argv[i], keys[k], strlen(keys[k])) != 0)
			k++;
		if (k == sizeof(keys) / sizeof(keys[0]) ||
		    argv[i][strlen(keys[k])] != '/')
			wrong++;
	}
	REQUIRE((rc == 0) == (wrong == 0));
	return 0;
}
