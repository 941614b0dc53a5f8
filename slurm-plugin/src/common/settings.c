/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
#include "common/settings.h"

#include <stddef.h>
#include <string.h>

#include <slurm/spank.h>

static const struct settings defaults = {
	.snapshot = "/var/lib/kernel-broker/catalog.snapshot",
	.kernelctl = "/usr/bin/kernelctl",
	.node_state = "/run/kernel-broker/node.state",
	.proc = "/proc",
	.sys = "/sys",
};

static const char **slot(struct settings *s, const char *key, size_t length)
{
	const struct {
		const char *key;
		const char **value;
	} keys[] = {
		{ "snapshot", &s->snapshot },
		{ "kernelctl", &s->kernelctl },
		{ "node_state", &s->node_state },
		{ "proc", &s->proc },
		{ "sys", &s->sys },
	};

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		if (strlen(keys[i].key) == length &&
		    strncmp(keys[i].key, key, length) == 0)
			return keys[i].value;
	}
	return NULL;
}

int settings_parse(int argc, char *argv[], struct settings *settings)
{
	int rc = 0;

	*settings = defaults;
	for (int i = 0; i < argc; i++) {
		const char *equals = strchr(argv[i], '=');
		const char **value = NULL;

		if (equals)
			value = slot(settings, argv[i],
				     (size_t)(equals - argv[i]));
		/* Only absolute paths: the working directory is the user's. */
		if (!value || equals[1] != '/') {
			slurm_error("kernel_profile: plugstack.conf: \"%s\" is "
				    "not snapshot=, kernelctl=, node_state=, "
				    "proc= or sys= with an absolute path",
				    argv[i]);
			rc = -1;
			continue;
		}
		*value = equals + 1;
	}
	return rc;
}
