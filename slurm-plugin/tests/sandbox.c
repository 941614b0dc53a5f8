/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
#include "sandbox.h"

#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[] = "/tmp/kernel-profile-test.XXXXXX";

static int remove_one(const char *path, const struct stat *st, int type,
		      struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

static void remove_all(void)
{
	nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void die(const char *what)
{
	perror(what);
	exit(99);
}

void sandbox_make(void)
{
	if (!mkdtemp(root))
		die("mkdtemp");
	atexit(remove_all);
}

const char *sandbox_path(const char *name)
{
	static char paths[8][PATH_MAX];
	static int next;
	char *path = paths[next++ % 8];

	snprintf(path, PATH_MAX, "%s/%s", root, name);
	return path;
}

void sandbox_write_bytes(const char *name, const void *data, size_t size)
{
	char *path = strdup(sandbox_path(name));
	FILE *file;

	for (char *p = path + strlen(root) + 1; (p = strchr(p, '/')); p++) {
		*p = '\0';
		mkdir(path, 0755);
		*p = '/';
	}
	file = fopen(path, "w");
	if (!file || fwrite(data, 1, size, file) != size || fclose(file))
		die(path);
	free(path);
}

void sandbox_write(const char *name, const char *text)
{
	sandbox_write_bytes(name, text, strlen(text));
}

void sandbox_program(const char *name, const char *text)
{
	sandbox_write(name, text);
	if (chmod(sandbox_path(name), 0755) < 0)
		die(name);
}

void sandbox_remove(const char *name)
{
	unlink(sandbox_path(name));
}

void sandbox_node(const char *cmdline)
{
	unsigned char notes[64] = { 4, 0, 0, 0, 20,  0,   0,   0,
				    3, 0, 0, 0, 'G', 'N', 'U', 0 };

	for (int i = 0; i < 20; i++) {
		unsigned int byte;

		sscanf(SANDBOX_BUILD_ID + 2 * i, "%2x", &byte);
		notes[16 + i] = (unsigned char)byte;
	}
	sandbox_write_bytes("sys/kernel/notes", notes, 36);
	sandbox_write("proc/sys/kernel/random/boot_id", SANDBOX_BOOT_ID "\n");
	sandbox_write("proc/sys/kernel/osrelease", SANDBOX_RELEASE "\n");
	sandbox_write("proc/cmdline", cmdline);
}

void sandbox_state(const char *profile, int version, const char *jobs,
		   int attested)
{
	char text[4096];

	snprintf(text, sizeof(text),
		 "format=1\nboot_id=" SANDBOX_BOOT_ID
		 "\nbuild_id=" SANDBOX_BUILD_ID "\nrelease=" SANDBOX_RELEASE
		 "\nprofile=%s\nversion=%d\njob=%s\nattested=%d\n",
		 profile, version, jobs, attested);
	sandbox_write("node.state", text);
}

void sandbox_lost(const char *jobs)
{
	FILE *f = fopen(sandbox_path("node.state"), "a");

	if (!f || fprintf(f, "lost=%s\n", jobs) < 0 || fclose(f))
		abort();
}

int sandbox_args(char **argv[])
{
	static const char *const files[][2] = {
		{ "snapshot", "catalog.snapshot" },
		{ "kernelctl", "kernelctl" },
		{ "node_state", "node.state" },
		{ "proc", "proc" },
		{ "sys", "sys" },
	};
	static char args[5][PATH_MAX];
	static char *list[6];

	for (int i = 0; i < 5; i++) {
		snprintf(args[i], PATH_MAX, "%s=%s", files[i][0],
			 sandbox_path(files[i][1]));
		list[i] = args[i];
	}
	*argv = list;
	return 5;
}
