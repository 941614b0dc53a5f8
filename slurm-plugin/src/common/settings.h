/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
/*
 * The plugin's arguments, as they stand after its path in plugstack.conf:
 * key=value words. Each has a default, so an ordinary installation has none.
 */
#ifndef KERNEL_PROFILE_SETTINGS_H
#define KERNEL_PROFILE_SETTINGS_H

struct settings {
	const char *snapshot;   /* the catalog snapshot of submit hosts */
	const char *kernelctl;  /* the program that asks the broker */
	const char *node_state; /* the agent's proof of what runs */
	const char *proc;       /* where procfs is mounted */
	const char *sys;        /* where sysfs is mounted */
};

/*
 * The strings stay the property of argv. Returns 0, or -1 after it has logged
 * every word it does not understand; the understood ones are set even then.
 */
int settings_parse(int argc, char *argv[], struct settings *settings);

#endif
