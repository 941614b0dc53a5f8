/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
#include "node/nodestate.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/readfile.h"

enum key {
	KEY_FORMAT,
	KEY_BOOT_ID,
	KEY_BUILD_ID,
	KEY_RELEASE,
	KEY_PROFILE,
	KEY_VERSION,
	KEY_JOB,
	KEY_ATTESTED,
	KEY_LOST,
	KEY_COUNT
};

static const char *const key_names[KEY_COUNT] = {
	[KEY_FORMAT] = "format",     [KEY_BOOT_ID] = "boot_id",
	[KEY_BUILD_ID] = "build_id", [KEY_RELEASE] = "release",
	[KEY_PROFILE] = "profile",   [KEY_VERSION] = "version",
	[KEY_JOB] = "job",           [KEY_ATTESTED] = "attested",
	[KEY_LOST] = "lost",
};

/* A text of min to max letters, all of them out of the allowed ones. */
static bool text_ok(const char *text, const char *allowed, size_t min,
		    size_t max)
{
	size_t length = strlen(text);

	return length >= min && length <= max &&
	       strspn(text, allowed) == length;
}

static bool release_ok(const char *text)
{
	size_t length = strlen(text);

	if (length == 0 || length > RELEASE_MAX)
		return false;
	for (size_t i = 0; i < length; i++) {
		if (text[i] <= ' ' || text[i] > '~')
			return false;
	}
	return true;
}

static bool set_profile(struct nodestate *state, const char *value)
{
	struct ref ref;

	if (ref_parse(value, &ref) != REF_OK || ref.version)
		return false;
	memcpy(state->kernel.name, ref.name, sizeof(ref.name));
	return true;
}

static bool set_jobs(char *jobs, const char *value)
{
	if (!text_ok(value, "0123456789,", 0, NODESTATE_JOBS_MAX))
		return false;
	strcpy(jobs, value);
	return true;
}

static bool set(struct nodestate *s, enum key key, const char *value)
{
	static const char hex[] = "0123456789abcdef";

	switch (key) {
	case KEY_FORMAT:
		return strcmp(value, "1") == 0;
	case KEY_BOOT_ID:
		if (!text_ok(value, "0123456789abcdef-", BOOT_ID_LENGTH,
			     BOOT_ID_LENGTH))
			return false;
		strcpy(s->boot_id, value);
		return true;
	case KEY_BUILD_ID:
		if (!text_ok(value, hex, 2, BUILD_ID_MAX))
			return false;
		strcpy(s->build_id, value);
		return true;
	case KEY_RELEASE:
		if (!release_ok(value))
			return false;
		strcpy(s->release, value);
		return true;
	case KEY_PROFILE:
		return set_profile(s, value);
	case KEY_VERSION:
		/* Of a distribution's kernel that the catalog lacks. */
		if (strcmp(value, "0") == 0) {
			s->kernel.version = 0;
			return true;
		}
		return ref_parse_version(value, strlen(value),
					 &s->kernel.version);
	case KEY_JOB:
		return set_jobs(s->jobs, value);
	case KEY_LOST:
		return set_jobs(s->lost, value);
	case KEY_ATTESTED:
		s->attested = strcmp(value, "1") == 0;
		return s->attested || strcmp(value, "0") == 0;
	case KEY_COUNT:
		break;
	}
	return false;
}

static enum key key_of(const char *line, size_t length)
{
	int key;

	for (key = 0; key < KEY_COUNT; key++) {
		if (strlen(key_names[key]) == length &&
		    strncmp(key_names[key], line, length) == 0)
			break;
	}
	return (enum key)key;
}

/* Changes the text: it cuts it into lines. */
static int parse_in_place(char *text, struct nodestate *state)
{
	struct nodestate s = { .attested = false };
	bool seen[KEY_COUNT] = { false };

	for (char *line = text; *line;) {
		char *newline = strchr(line, '\n');
		char *equals;
		enum key key;

		/* The writer ends every line: this one was cut short. */
		if (!newline)
			return EBADMSG;
		*newline = '\0';
		equals = strchr(line, '=');
		if (!equals)
			return EBADMSG;
		key = key_of(line, (size_t)(equals - line));
		if (key != KEY_COUNT) {
			if (seen[key] || !set(&s, key, equals + 1))
				return EBADMSG;
			seen[key] = true;
		}
		line = newline + 1;
	}
	for (int key = 0; key < KEY_COUNT; key++) {
		if (!seen[key] && key != KEY_JOB && key != KEY_LOST)
			return EBADMSG;
	}
	if (!s.kernel.version && !ref_is_stock(&s.kernel))
		return EBADMSG;
	*state = s;
	return 0;
}

int nodestate_parse(const char *text, size_t size, struct nodestate *state)
{
	char *copy;
	int rc;

	if (size > NODESTATE_LIMIT)
		return EFBIG;
	if (size == 0 || memchr(text, '\0', size))
		return EBADMSG;
	copy = malloc(size + 1);
	if (!copy)
		return ENOMEM;
	memcpy(copy, text, size);
	copy[size] = '\0';
	rc = parse_in_place(copy, state);
	free(copy);
	return rc;
}

int nodestate_load(const char *path, struct nodestate *state)
{
	char *text;
	size_t size;
	int rc = read_file(path, NODESTATE_LIMIT, &text, &size);

	if (rc)
		return rc;
	rc = nodestate_parse(text, size, state);
	free(text);
	return rc;
}

static bool has(const char *jobs, uint32_t job)
{
	for (const char *p = jobs; *p;) {
		size_t length = strcspn(p, ",");
		uint64_t id = 0;

		/* A job id has 10 digits at most; more is no job's id. */
		for (size_t i = 0; i < length && length <= 10; i++)
			id = id * 10 + (uint64_t)(p[i] - '0');
		if (length > 0 && length <= 10 && id == job)
			return true;
		p += length;
		if (*p)
			p++;
	}
	return false;
}

bool nodestate_has_job(const struct nodestate *state, uint32_t job)
{
	return has(state->jobs, job);
}

bool nodestate_lost_job(const struct nodestate *state, uint32_t job)
{
	return has(state->lost, job);
}
