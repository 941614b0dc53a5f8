/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
#include "submit/catalog.h"

#include <stdio.h>
#include <string.h>

#include <slurm/spank.h>

#include "submit/checker.h"
#include "submit/nearmiss.h"
#include "submit/snapshot.h"

#define HINT_SIZE (NEARMISS_MAX * (REF_NAME_MAX + 8) + 32)

/* Appends; a text that is full stays as it is. */
static void add(char *text, const char *more)
{
	size_t used = strlen(text);

	snprintf(text + used, HINT_SIZE - used, "%s", more);
}

/* "; did you mean "a", "b" or "c"?" for a name that is not in the catalog. */
static void make_hint(const struct snapshot *snapshot, const char *name,
		      char hint[HINT_SIZE])
{
	const char *found[NEARMISS_MAX];
	size_t count;

	hint[0] = '\0';
	if (!snapshot || snapshot_find(snapshot, name))
		return;
	count = nearmiss_find(snapshot, name, found);
	for (size_t i = 0; i < count; i++) {
		if (i == 0)
			add(hint, "; did you mean ");
		else
			add(hint, i + 1 == count ? " or " : ", ");
		add(hint, "\"");
		add(hint, found[i]);
		add(hint, "\"");
	}
	if (count)
		add(hint, "?");
}

static int ask_broker(const struct settings *settings,
		      const struct snapshot *snapshot, const struct ref *ref,
		      bool profiled)
{
	char text[REF_TEXT_SIZE];
	char reason[CHECKER_REASON_SIZE];
	char hint[HINT_SIZE];

	ref_format(ref, text);
	switch (checker_ask(settings->kernelctl, text, profiled, reason)) {
	case CHECKER_ACCEPTED:
		return 0;
	case CHECKER_UNKNOWN:
		slurm_info("warning: whether there is a kernel profile \"%s\" "
			   "could not be checked (%s); the job is submitted, "
			   "and checked again before it starts",
			   text, reason);
		return 0;
	case CHECKER_REFUSED:
		break;
	}
	/* The broker knows more names than the snapshot, and hints as well. */
	hint[0] = '\0';
	if (!strstr(reason, "did you mean"))
		make_hint(snapshot, ref->name, hint);
	if (*reason)
		slurm_error("%s%s ('kernelctl profile list' shows all)", reason,
			    hint);
	else
		slurm_error("the kernel profile \"%s\" is refused%s "
			    "('kernelctl profile list' shows all)",
			    text, hint);
	return -1;
}

int catalog_check(const struct settings *settings, const struct ref *ref)
{
	struct snapshot snapshot;
	const struct snapshot_entry *entry;
	int rc;

	/* Every node has stock, whatever any catalog says. */
	if (ref_is_stock(ref) && !ref->version)
		return 0;
	rc = snapshot_load(settings->snapshot, &snapshot);
	if (rc) {
		slurm_debug("kernel_profile: no catalog snapshot in %s: %s",
			    settings->snapshot, strerror(rc));
		return ask_broker(settings, NULL, ref, false);
	}
	entry = snapshot_find(&snapshot, ref->name);
	if (entry && snapshot_offers(entry, ref))
		rc = 0;
	else
		rc = ask_broker(settings, &snapshot, ref, false);
	snapshot_free(&snapshot);
	return rc;
}

int catalog_check_profiled(const struct settings *settings,
			   const struct ref *ref)
{
	if (ref_is_stock(ref))
		return 0;
	return ask_broker(settings, NULL, ref, true);
}
