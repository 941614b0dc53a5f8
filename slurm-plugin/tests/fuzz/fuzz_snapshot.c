/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
#include <string.h>

#include "fuzz.h"
#include "submit/nearmiss.h"
#include "submit/snapshot.h"

/* A catalog that is believed is one that can be used throughout. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *found[NEARMISS_MAX];
	struct snapshot s;

	if (snapshot_parse((const char *)data, size, &s))
		return 0;
	for (size_t i = 0; i < s.count; i++) {
		const struct snapshot_entry *entry = &s.entries[i];
		struct ref ref;

		REQUIRE(ref_parse(entry->name, &ref) == REF_OK);
		REQUIRE(snapshot_find(&s, entry->name) == entry);
		ref.version = entry->default_version;
		REQUIRE(snapshot_offers(entry, &ref) == entry->available);
		nearmiss_find(&s, entry->name, found);
	}
	REQUIRE(nearmiss_find(&s, "mitgmc", found) <= NEARMISS_MAX);
	snapshot_free(&s);
	return 0;
}
