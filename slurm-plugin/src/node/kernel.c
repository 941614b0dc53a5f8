/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
#include "node/kernel.h"

#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/readfile.h"

#define NOTES_LIMIT ((size_t)65536)
#define CMDLINE_LIMIT ((size_t)65536)
#define LINE_LIMIT ((size_t)256)
#define TOKEN "kernelbroker.token="
#define NOTE_GNU_BUILD_ID 3

static size_t align4(size_t n)
{
	return (n + 3) & ~(size_t)3;
}

static void to_hex(const char *bytes, size_t size, char *hex)
{
	for (size_t i = 0; i < size; i++)
		sprintf(hex + 2 * i, "%02x", (unsigned char)bytes[i]);
}

bool kernel_parse_notes(const char *notes, size_t size, char *build_id)
{
	/* Each note: three words (name size, data size, type), name, data. */
	while (size >= 12) {
		uint32_t head[3];
		size_t name, data;

		memcpy(head, notes, sizeof(head));
		if (head[0] > size || head[1] > size)
			return false;
		name = 12;
		data = name + align4(head[0]);
		if (data > size || head[1] > size - data)
			return false;
		if (head[2] == NOTE_GNU_BUILD_ID && head[0] == 4 &&
		    memcmp(notes + name, "GNU", 4) == 0) {
			if (head[1] == 0 || head[1] > BUILD_ID_MAX / 2)
				return false;
			to_hex(notes + data, head[1], build_id);
			return true;
		}
		data += align4(head[1]);
		if (data > size)
			return false;
		notes += data;
		size -= data;
	}
	return false;
}

bool kernel_parse_cmdline(const char *cmdline)
{
	/* The kernel quotes with ", which may hide a blank: look at both. */
	for (const char *p = cmdline; (p = strstr(p, TOKEN)); p++) {
		if (p == cmdline || strchr(" \t\n\"", p[-1]))
			return true;
	}
	return false;
}

/* The first line of a small file, or an empty text. */
static void read_line(const char *root, const char *name, char *line,
		      size_t room)
{
	char path[PATH_MAX];
	char *text;
	size_t size, length;

	line[0] = '\0';
	if (snprintf(path, sizeof(path), "%s/%s", root, name) >= PATH_MAX)
		return;
	if (read_file(path, LINE_LIMIT, &text, &size))
		return;
	length = strcspn(text, "\n");
	if (length < room) {
		memcpy(line, text, length);
		line[length] = '\0';
	}
	free(text);
}

static void read_build_id(const char *sys, char *build_id)
{
	char path[PATH_MAX];
	char *notes;
	size_t size;

	build_id[0] = '\0';
	if (snprintf(path, sizeof(path), "%s/kernel/notes", sys) >= PATH_MAX)
		return;
	if (read_file(path, NOTES_LIMIT, &notes, &size))
		return;
	if (!kernel_parse_notes(notes, size, build_id))
		build_id[0] = '\0';
	free(notes);
}

static bool read_token(const char *proc)
{
	char path[PATH_MAX];
	char *text;
	size_t size;
	bool found;

	/* What cannot be read may have one: the careful answer is yes. */
	if (snprintf(path, sizeof(path), "%s/cmdline", proc) >= PATH_MAX)
		return true;
	if (read_file(path, CMDLINE_LIMIT, &text, &size))
		return true;
	found = kernel_parse_cmdline(text);
	free(text);
	return found;
}

void kernel_read(const char *proc, const char *sys, struct kernel *kernel)
{
	read_line(proc, "sys/kernel/random/boot_id", kernel->boot_id,
		  sizeof(kernel->boot_id));
	read_line(proc, "sys/kernel/osrelease", kernel->release,
		  sizeof(kernel->release));
	read_build_id(sys, kernel->build_id);
	kernel->booted_by_broker = read_token(proc);
}
