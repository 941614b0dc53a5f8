/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
/*
 * The catalog snapshot: a small text file that the broker (or the node's
 * agent) leaves on submit hosts, so that most submissions need no broker.
 *
 *	kernel-broker-snapshot 1
 *	generated 2026-11-20T10:00:00Z
 *	profile NAME DEFAULT ALL,VERSIONS available|quarantined
 *	end
 *
 * It may be stale, so it can only say yes. A file that is missing, cut short
 * or damaged anywhere counts as absent: no part of it is believed.
 */
#ifndef KERNEL_PROFILE_SNAPSHOT_H
#define KERNEL_PROFILE_SNAPSHOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/ref.h"

#define SNAPSHOT_LIMIT ((size_t)1 << 20)

struct snapshot_entry {
	char name[REF_NAME_MAX + 1];
	uint32_t default_version;
	const char *versions; /* a comma list inside snapshot.text */
	bool available;
};

struct snapshot {
	char *text;
	struct snapshot_entry *entries;
	size_t count;
};

/*
 * Both return 0, or an errno (EBADMSG: damaged, ENODATA: no end line). The
 * snapshot must be freed after a success only.
 */
int snapshot_load(const char *path, struct snapshot *snapshot);
int snapshot_parse(const char *text, size_t size, struct snapshot *snapshot);

void snapshot_free(struct snapshot *snapshot);

/* NULL when the snapshot does not have that name. */
const struct snapshot_entry *snapshot_find(const struct snapshot *snapshot,
					   const char *name);

/* Whether the entry may be chosen: available, version known. */
bool snapshot_offers(const struct snapshot_entry *entry, const struct ref *ref);

#endif
