/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
#include "common/ref.h"

#include <stdio.h>
#include <string.h>

#include "common/names.h"

static bool is_alnum(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

static bool is_inner(char c)
{
	return is_alnum(c) || c == '.' || c == '_' || c == '-';
}

static bool name_ok(const char *name, size_t length)
{
	if (length == 0 || length > REF_NAME_MAX)
		return false;
	for (size_t i = 0; i < length; i++) {
		if (!is_inner(name[i]))
			return false;
	}
	return is_alnum(name[0]) && is_alnum(name[length - 1]);
}

bool ref_parse_version(const char *text, size_t length, uint32_t *version)
{
	uint32_t value = 0;

	if (length == 0 || length > REF_VERSION_DIGITS || text[0] == '0')
		return false;
	for (size_t i = 0; i < length; i++) {
		if (text[i] < '0' || text[i] > '9')
			return false;
		value = value * 10 + (uint32_t)(text[i] - '0');
	}
	*version = value;
	return true;
}

enum ref_error ref_parse(const char *text, struct ref *ref)
{
	struct ref result = { .version = 0 };
	const char *at;
	size_t length;

	if (!text || !*text)
		return REF_EMPTY;
	if (strchr(text, ','))
		return REF_LIST;
	at = strchr(text, '@');
	length = at ? (size_t)(at - text) : strlen(text);
	if (!name_ok(text, length))
		return REF_BAD_NAME;
	if (at && !ref_parse_version(at + 1, strlen(at + 1), &result.version))
		return REF_BAD_VERSION;
	memcpy(result.name, text, length);
	*ref = result;
	return REF_OK;
}

const char *ref_error_text(enum ref_error error)
{
	switch (error) {
	case REF_OK:
		return "no error";
	case REF_EMPTY:
		return "a profile name is missing";
	case REF_LIST:
		return "one job has one profile, and this is a list";
	case REF_BAD_NAME:
		return "a name has 1 to 64 lower-case letters, digits, dots, "
		       "underscores and dashes, and begins and ends with a "
		       "letter or digit";
	case REF_BAD_VERSION:
		return "a version is a positive whole number of up to 9 "
		       "digits without a leading zero, as in NAME@3";
	}
	return "unknown error";
}

bool ref_is_stock(const struct ref *ref)
{
	return strcmp(ref->name, REF_STOCK) == 0;
}

bool ref_equal(const struct ref *a, const struct ref *b)
{
	return strcmp(a->name, b->name) == 0 && a->version == b->version;
}

bool ref_agree(const struct ref *a, const struct ref *b)
{
	if (strcmp(a->name, b->name) != 0)
		return false;
	return !a->version || !b->version || a->version == b->version;
}

void ref_format(const struct ref *ref, char *text)
{
	if (ref->version)
		snprintf(text, REF_TEXT_SIZE, "%s@%u", ref->name,
			 (unsigned int)ref->version);
	else
		snprintf(text, REF_TEXT_SIZE, "%s", ref->name);
}

bool ref_instrumented(struct ref *ref)
{
	size_t length = strlen(ref->name);

	if (ref->version || length + sizeof(INSTRUMENTED) - 1 > REF_NAME_MAX)
		return false;
	memcpy(ref->name + length, INSTRUMENTED, sizeof(INSTRUMENTED));
	return true;
}
