/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
#include "submit/snapshot.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/readfile.h"

#define MAGIC "kernel-broker-snapshot 1"
#define FIELDS 5

static bool versions_have(const char *list, uint32_t wanted)
{
	for (const char *p = list;; p++) {
		size_t length = strcspn(p, ",");
		uint32_t version;

		if (ref_parse_version(p, length, &version) && version == wanted)
			return true;
		p += length;
		if (!*p)
			return false;
	}
}

static bool versions_ok(const char *list)
{
	for (const char *p = list;; p++) {
		size_t length = strcspn(p, ",");
		uint32_t version;

		if (!ref_parse_version(p, length, &version))
			return false;
		p += length;
		if (!*p)
			return true;
	}
}

/* Cuts the line at single blanks; returns how many fields there are. */
static size_t split(char *line, char *fields[FIELDS])
{
	size_t n = 0;

	for (char *p = line; p; n++) {
		char *blank = strchr(p, ' ');

		if (n == FIELDS)
			return FIELDS + 1;
		fields[n] = p;
		if (blank)
			*blank++ = '\0';
		p = blank;
	}
	return n;
}

static bool parse_profile(char *line, struct snapshot_entry *entry)
{
	char *fields[FIELDS];
	struct ref ref;

	if (split(line, fields) != FIELDS)
		return false;
	if (ref_parse(fields[1], &ref) != REF_OK || ref.version)
		return false;
	memcpy(entry->name, ref.name, sizeof(entry->name));
	if (!ref_parse_version(fields[2], strlen(fields[2]),
			       &entry->default_version))
		return false;
	entry->versions = fields[3];
	if (!versions_ok(fields[3]) ||
	    !versions_have(fields[3], entry->default_version))
		return false;
	entry->available = strcmp(fields[4], "available") == 0;
	return entry->available || strcmp(fields[4], "quarantined") == 0;
}

static int add_profile(struct snapshot *s, size_t *room, char *line)
{
	struct snapshot_entry entry = { .default_version = 0 };

	if (!parse_profile(line, &entry) || snapshot_find(s, entry.name))
		return EBADMSG;
	if (s->count == *room) {
		size_t more = *room ? *room * 2 : 16;
		struct snapshot_entry *grown =
			realloc(s->entries, more * sizeof(*grown));

		if (!grown)
			return ENOMEM;
		s->entries = grown;
		*room = more;
	}
	s->entries[s->count++] = entry;
	return 0;
}

/* Takes the lines one by one; only the end line makes the file whole. */
static int parse_lines(struct snapshot *s)
{
	size_t room = 0;
	char *line = s->text;

	for (size_t number = 1;; number++) {
		char *newline = strchr(line, '\n');
		int rc;

		if (!newline)
			return ENODATA;
		*newline = '\0';
		if (number == 1) {
			if (strcmp(line, MAGIC) != 0)
				return EBADMSG;
		} else if (strcmp(line, "end") == 0) {
			return 0;
		} else if (strncmp(line, "profile ", 8) == 0) {
			rc = add_profile(s, &room, line);
			if (rc)
				return rc;
		}
		/* Other words belong to a later writer: not ours to judge. */
		line = newline + 1;
	}
}

/* Takes the text over, also when it fails. */
static int parse_owned(char *text, size_t size, struct snapshot *snapshot)
{
	struct snapshot s = { .text = text };
	int rc = memchr(text, '\0', size) ? EBADMSG : parse_lines(&s);

	if (rc) {
		snapshot_free(&s);
		return rc;
	}
	*snapshot = s;
	return 0;
}

int snapshot_parse(const char *text, size_t size, struct snapshot *snapshot)
{
	char *copy;

	if (size > SNAPSHOT_LIMIT)
		return EFBIG;
	copy = malloc(size + 1);
	if (!copy)
		return ENOMEM;
	if (size)
		memcpy(copy, text, size);
	copy[size] = '\0';
	return parse_owned(copy, size, snapshot);
}

int snapshot_load(const char *path, struct snapshot *snapshot)
{
	char *text;
	size_t size;
	int rc = read_file(path, SNAPSHOT_LIMIT, &text, &size);

	return rc ? rc : parse_owned(text, size, snapshot);
}

void snapshot_free(struct snapshot *snapshot)
{
	free(snapshot->entries);
	free(snapshot->text);
	*snapshot = (struct snapshot){ .text = NULL };
}

const struct snapshot_entry *snapshot_find(const struct snapshot *snapshot,
					   const char *name)
{
	for (size_t i = 0; i < snapshot->count; i++) {
		if (strcmp(snapshot->entries[i].name, name) == 0)
			return &snapshot->entries[i];
	}
	return NULL;
}

bool snapshot_offers(const struct snapshot_entry *entry, const struct ref *ref)
{
	if (!entry->available)
		return false;
	return !ref->version || versions_have(entry->versions, ref->version);
}
