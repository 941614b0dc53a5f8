/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
/*
 * A wish is what a user writes after --kernel-profile=: the name of a kernel
 * profile and, if it matters, its version. This file knows the syntax and
 * nothing else; whether such a profile exists is the catalog's business.
 */
#ifndef KERNEL_PROFILE_WISH_H
#define KERNEL_PROFILE_WISH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WISH_NAME_MAX 64
#define WISH_VERSION_DIGITS 9
/* NAME, '@', any uint32_t and the final NUL. */
#define WISH_TEXT_SIZE (WISH_NAME_MAX + 1 + 10 + 1)

/* A job's id of up to 20 digits, '/' and the above. */
#define STEP_JOB_SIZE (20 + 1 + WISH_TEXT_SIZE)

/* The name that stands for the distribution's own kernel. */
#define WISH_STOCK "stock"

struct wish {
	char name[WISH_NAME_MAX + 1];
	uint32_t version; /* 0: any version will do */
};

enum wish_error {
	WISH_OK = 0,
	WISH_EMPTY,
	WISH_LIST,
	WISH_BAD_NAME,
	WISH_BAD_VERSION,
};

/* Fills *wish only on WISH_OK. */
enum wish_error wish_parse(const char *text, struct wish *wish);

/* A sentence for the user; never NULL. */
const char *wish_error_text(enum wish_error error);

/* A positive decimal number of up to 9 digits without a leading zero. */
bool wish_parse_version(const char *text, size_t length, uint32_t *version);

bool wish_is_stock(const struct wish *wish);
bool wish_equal(const struct wish *a, const struct wish *b);

/*
 * True when a kernel that satisfies one of them may satisfy the other too:
 * the same name, and no two different versions.
 */
bool wish_agree(const struct wish *a, const struct wish *b);

/* Writes NAME or NAME@VERSION; the buffer has WISH_TEXT_SIZE bytes. */
void wish_format(const struct wish *wish, char *text);

#endif
