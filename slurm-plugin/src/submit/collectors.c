/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
#include "submit/collectors.h"

#include <string.h>

static const struct {
	const char *name;
	unsigned int set;
} names[] = {
	{ "io", COLLECT_IO },
	{ "syscalls", COLLECT_SYSCALLS },
	{ "callgraph", COLLECT_CALLGRAPH },
	{ "noise", COLLECT_NOISE },
	{ "pgo", COLLECT_PGO },
	{ "callcounts", COLLECT_CALLCOUNTS },
};

static unsigned int find(const char *text, size_t length)
{
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (strlen(names[i].name) == length &&
		    memcmp(names[i].name, text, length) == 0)
			return names[i].set;
	}
	return 0;
}

bool collectors_parse(const char *text, unsigned int *set, const char **bad,
		      size_t *length)
{
	unsigned int found = 0;

	if (!text || strcmp(text, "default") == 0) {
		*set = COLLECT_DEFAULT;
		return true;
	}
	if (strcmp(text, "all") == 0) {
		*set = COLLECT_ALL;
		return true;
	}
	for (;;) {
		size_t one = strcspn(text, ",");
		unsigned int which = find(text, one);

		if (!which) {
			*bad = text;
			*length = one;
			return false;
		}
		found |= which;
		if (!text[one])
			break;
		text += one + 1;
	}
	*set = found;
	return true;
}

void collectors_format(unsigned int set, char *text)
{
	*text = '\0';
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (!(set & names[i].set))
			continue;
		if (*text)
			strcat(text, ",");
		strcat(text, names[i].name);
	}
}
