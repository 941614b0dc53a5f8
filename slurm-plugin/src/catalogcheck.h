/*
 * Can a new job have this profile? The snapshot may say yes. Where it does
 * not, or where there is none, the broker is asked, because the snapshot may
 * be stale; and where the broker is out of reach, the submission is let
 * through with a warning.
 */
#ifndef KERNEL_PROFILE_CATALOGCHECK_H
#define KERNEL_PROFILE_CATALOGCHECK_H

#include <stdbool.h>

#include "settings.h"
#include "wish.h"

/* Returns 0, or -1 after telling the user why not. */
int catalog_check(const struct settings *settings, const struct wish *wish);

/*
 * Whether catalog_check says yes by the snapshot alone. The broker may know
 * more: a snapshot can be older than a kernel. Nobody is asked and nothing is
 * said.
 */
bool catalog_offers(const struct settings *settings, const struct wish *wish);

#endif
