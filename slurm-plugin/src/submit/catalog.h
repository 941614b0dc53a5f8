/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
/*
 * Can a new job have this profile? The snapshot may say yes. Where it does
 * not, or where there is none, the broker is asked, because the snapshot may
 * be stale; and where the broker is out of reach, the submission is let
 * through with a warning.
 */
#ifndef KERNEL_PROFILE_CATALOG_H
#define KERNEL_PROFILE_CATALOG_H

#include "common/settings.h"
#include "common/ref.h"

/* Returns 0, or -1 after telling the user why not. */
int catalog_check(const struct settings *settings, const struct ref *ref);

/* The same for a profile whose kernel is to be profiled: only the broker knows. */
int catalog_check_profiled(const struct settings *settings,
			   const struct ref *ref);

#endif
