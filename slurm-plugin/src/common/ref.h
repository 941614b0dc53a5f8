/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
/*
 * A reference to a kernel, as written after --kernel-profile=: the name of a
 * profile and, if it matters, its version. This file knows the syntax and
 * nothing else; whether such a profile exists is the catalog's business.
 */
#ifndef KERNEL_PROFILE_REF_H
#define KERNEL_PROFILE_REF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REF_NAME_MAX 64
#define REF_VERSION_DIGITS 9
/* NAME, '@', any uint32_t and the final NUL. */
#define REF_TEXT_SIZE (REF_NAME_MAX + 1 + 10 + 1)

/* A job's id of up to 20 digits, '/' and the above. */
#define STEP_JOB_SIZE (20 + 1 + REF_TEXT_SIZE)

/* The name that stands for the distribution's own kernel. */
#define REF_STOCK "stock"

struct ref {
	char name[REF_NAME_MAX + 1];
	uint32_t version; /* 0: any version will do */
};

enum ref_error {
	REF_OK = 0,
	REF_EMPTY,
	REF_LIST,
	REF_BAD_NAME,
	REF_BAD_VERSION,
};

/* Fills *ref only on REF_OK. */
enum ref_error ref_parse(const char *text, struct ref *ref);

/* A sentence for the user; never NULL. */
const char *ref_error_text(enum ref_error error);

/* A positive decimal number of up to 9 digits without a leading zero. */
bool ref_parse_version(const char *text, size_t length, uint32_t *version);

bool ref_is_stock(const struct ref *ref);
bool ref_equal(const struct ref *a, const struct ref *b);

/*
 * True when a kernel that satisfies one of them may satisfy the other too:
 * the same name, and no two different versions.
 */
bool ref_agree(const struct ref *a, const struct ref *b);

/*
 * Makes of a profile the reference to its instrumented kernel. False, and the
 * reference unchanged, where none can exist: with a version, or when the name
 * is too long.
 */
bool ref_instrumented(struct ref *ref);

/* Writes NAME or NAME@VERSION; the buffer has REF_TEXT_SIZE bytes. */
void ref_format(const struct ref *ref, char *text);

#endif
