/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
/*
 * Finds the profile names that a mistyped one was probably meant to be.
 */
#ifndef KERNEL_PROFILE_NEARMISS_H
#define KERNEL_PROFILE_NEARMISS_H

#include <stddef.h>

#include "submit/snapshot.h"

#define NEARMISS_MAX 3

/*
 * How many single-letter changes (insert, delete, replace, swap of two
 * neighbours) lie between two names of up to REF_NAME_MAX letters.
 */
size_t nearmiss_distance(const char *a, const char *b);

/*
 * Fills found[] with up to NEARMISS_MAX names that may be chosen, the nearest
 * first, equal ones in the catalog's order; they belong to the snapshot.
 */
size_t nearmiss_find(const struct snapshot *snapshot, const char *name,
		     const char *found[NEARMISS_MAX]);

#endif
