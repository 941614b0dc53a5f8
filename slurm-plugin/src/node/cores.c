/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
#include "node/cores.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <slurm/spank.h>

#include "common/readfile.h"

#define CMDLINE_LIMIT ((size_t)65536)
#define PARAMETER "kernelbroker.system_cpus="

/* A number below CPU_SETSIZE, without a sign or blanks; moves behind it. */
static bool number(const char **text, size_t *value)
{
	size_t n = 0;

	if (**text < '0' || **text > '9')
		return false;
	for (; **text >= '0' && **text <= '9'; (*text)++) {
		n = 10 * n + (size_t)(**text - '0');
		if (n >= CPU_SETSIZE)
			return false;
	}
	*value = n;
	return true;
}

/* A list such as 0,4-5 up to the end of the word. */
static bool list(const char *text, cpu_set_t *cpus)
{
	CPU_ZERO(cpus);
	for (;; text++) {
		size_t first, last;

		if (!number(&text, &first))
			return false;
		last = first;
		if (*text == '-') {
			text++;
			if (!number(&text, &last) || last < first)
				return false;
		}
		for (size_t cpu = first; cpu <= last; cpu++)
			CPU_SET(cpu, cpus);
		if (*text != ',')
			return !*text || strchr(" \t\n", *text);
	}
}

bool cores_parse(const char *cmdline, cpu_set_t *system)
{
	/* The agent writes it outside of quotes, and the kernel uses the last. */
	const char *found = NULL;

	for (const char *p = cmdline; (p = strstr(p, PARAMETER)); p++) {
		if (p == cmdline || strchr(" \t\n", p[-1]))
			found = p;
	}
	return found && list(found + strlen(PARAMETER), system);
}

static bool read_system(const char *proc, cpu_set_t *system)
{
	char path[PATH_MAX];
	char *text;
	size_t size;
	bool known;

	if (snprintf(path, sizeof(path), "%s/cmdline", proc) >= PATH_MAX)
		return false;
	if (read_file(path, CMDLINE_LIMIT, &text, &size))
		return false;
	known = cores_parse(text, system);
	free(text);
	return known;
}

void cores_place_task(const struct settings *settings)
{
	cpu_set_t system, mine, left;

	if (!read_system(settings->proc, &system))
		return;
	if (sched_getaffinity(0, sizeof(mine), &mine)) {
		slurm_error("kernel_profile: the task's CPUs cannot be read: "
			    "%s",
			    strerror(errno));
		return;
	}
	CPU_AND(&left, &mine, &system);
	if (!CPU_COUNT(&left))
		return;
	CPU_XOR(&left, &left, &mine);
	if (!CPU_COUNT(&left)) {
		/* Slurm bound it to nothing else, or not at all. */
		for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
			if (!CPU_ISSET(cpu, &system))
				CPU_SET(cpu, &left);
		}
	}
	if (sched_setaffinity(0, sizeof(left), &left))
		slurm_error("kernel_profile: the task stays on the system's "
			    "CPUs: %s",
			    strerror(errno));
}
