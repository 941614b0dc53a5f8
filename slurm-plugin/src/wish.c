/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
#include "wish.h"

#include <stdio.h>
#include <string.h>

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
	if (length == 0 || length > WISH_NAME_MAX)
		return false;
	for (size_t i = 0; i < length; i++) {
		if (!is_inner(name[i]))
			return false;
	}
	return is_alnum(name[0]) && is_alnum(name[length - 1]);
}

bool wish_parse_version(const char *text, size_t length, uint32_t *version)
{
	uint32_t value = 0;

	if (length == 0 || length > WISH_VERSION_DIGITS || text[0] == '0')
		return false;
	for (size_t i = 0; i < length; i++) {
		if (text[i] < '0' || text[i] > '9')
			return false;
		value = value * 10 + (uint32_t)(text[i] - '0');
	}
	*version = value;
	return true;
}

enum wish_error wish_parse(const char *text, struct wish *wish)
{
	struct wish result = { .version = 0 };
	const char *at;
	size_t length;

	if (!text || !*text)
		return WISH_EMPTY;
	if (strchr(text, ','))
		return WISH_LIST;
	at = strchr(text, '@');
	length = at ? (size_t)(at - text) : strlen(text);
	if (!name_ok(text, length))
		return WISH_BAD_NAME;
	if (at && !wish_parse_version(at + 1, strlen(at + 1), &result.version))
		return WISH_BAD_VERSION;
	memcpy(result.name, text, length);
	*wish = result;
	return WISH_OK;
}

const char *wish_error_text(enum wish_error error)
{
	switch (error) {
	case WISH_OK:
		return "no error";
	case WISH_EMPTY:
		return "a profile name is missing";
	case WISH_LIST:
		return "one job has one profile, and this is a list";
	case WISH_BAD_NAME:
		return "a name has 1 to 64 lower-case letters, digits, dots, "
		       "underscores and dashes, and begins and ends with a "
		       "letter or digit";
	case WISH_BAD_VERSION:
		return "a version is a positive whole number of up to 9 "
		       "digits without a leading zero, as in NAME@3";
	}
	return "unknown error";
}

bool wish_is_stock(const struct wish *wish)
{
	return strcmp(wish->name, WISH_STOCK) == 0;
}

bool wish_equal(const struct wish *a, const struct wish *b)
{
	return strcmp(a->name, b->name) == 0 && a->version == b->version;
}

bool wish_agree(const struct wish *a, const struct wish *b)
{
	if (strcmp(a->name, b->name) != 0)
		return false;
	return !a->version || !b->version || a->version == b->version;
}

void wish_format(const struct wish *wish, char *text)
{
	if (wish->version)
		snprintf(text, WISH_TEXT_SIZE, "%s@%u", wish->name,
			 (unsigned int)wish->version);
	else
		snprintf(text, WISH_TEXT_SIZE, "%s", wish->name);
}
