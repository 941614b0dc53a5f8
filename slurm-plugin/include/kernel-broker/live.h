/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
/*
 * What a profiling run has found of a job so far, for the job itself: a line of
 * JSON each second on each node, while a program is connected.
 *
 *	int fd = kb_live_open(NULL);
 *	struct kb_live_line line = { 0 };
 *	double calls;
 *
 *	while (kb_live_next(fd, &line) > 0)
 *		if (!kb_live_number(line.text,
 *			"result.syscalls.calls[name=write].count", &calls))
 *			printf("%.0f writes\n", calls);
 *	kb_live_close(fd, &line);
 *
 * "kernelctl run report RUN -o json" prints an object like result at the end. All
 * functions set errno where they fail. Only root and the job's user can connect.
 * For C (from C99) and C++; nothing needs to be linked.
 */
#ifndef KERNEL_BROKER_LIVE_H
#define KERNEL_BROKER_LIVE_H

#include <errno.h>
#include <langinfo.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>
#include <unistd.h>

#ifndef KB_LIVE_FOLDER
#define KB_LIVE_FOLDER "/run/kernel-broker/jobs"
#endif

/* A line without its end, and what of the next one has come. All zero at first. */
struct kb_live_line {
	char *text;
	size_t room;
	size_t have;
	size_t used;
};

/*
 * Connects to the figures of a job, NULL: the one that this process is of
 * (SLURM_JOB_ID). A file descriptor, which poll can wait for, or -1: ENOENT says
 * that the job has no profiling run on this node.
 */
static inline int kb_live_open(const char *job)
{
	struct sockaddr_un address;
	int fd, length;

	memset(&address, 0, sizeof(address));
	address.sun_family = AF_UNIX;
	if (!job)
		job = getenv("SLURM_JOB_ID");
	if (!job || !*job || strspn(job, "0123456789") != strlen(job)) {
		errno = EINVAL;
		return -1;
	}
	length = snprintf(address.sun_path, sizeof(address.sun_path),
			  "%s/%s.sock", KB_LIVE_FOLDER, job);
	if (length < 0 || (size_t)length >= sizeof(address.sun_path)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -1;
	if (connect(fd, (struct sockaddr *)&address, sizeof(address))) {
		int why = errno;

		close(fd);
		errno = why;
		return -1;
	}
	return fd;
}

/* Waits for the next line. Its length, 0 at the end of the run, -1 on an error. */
static inline ssize_t kb_live_next(int fd, struct kb_live_line *line)
{
	if (line->used) {
		line->have -= line->used;
		memmove(line->text, line->text + line->used, line->have);
		line->used = 0;
	}
	for (size_t looked = 0;;) {
		char *end = NULL;
		ssize_t got;

		if (line->text)
			end = (char *)memchr(line->text + looked, '\n',
					     line->have - looked);
		if (end) {
			*end = '\0';
			line->used = (size_t)(end - line->text) + 1;
			return end - line->text;
		}
		looked = line->have;
		if (line->have == line->room) {
			size_t room = line->room ? line->room * 2 : 65536;
			char *text = (char *)realloc(line->text, room);

			if (!text)
				return -1;
			line->text = text;
			line->room = room;
		}
		got = read(fd, line->text + line->have,
			   line->room - line->have);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return got;
		line->have += (size_t)got;
	}
}

static inline void kb_live_close(int fd, struct kb_live_line *line)
{
	if (fd >= 0)
		close(fd);
	free(line->text);
	memset(line, 0, sizeof(*line));
}

/* What follows is JSON, as far as kb_live_number needs it. */

#define KB_LIVE_DEEPEST 64

static inline const char *kb_live_space(const char *at)
{
	return at + strspn(at, " \t\r\n");
}

/* Behind a string that begins here, NULL if none does. */
static inline const char *kb_live_string(const char *at)
{
	if (*at++ != '"')
		return NULL;
	for (; *at && *at != '"'; at++) {
		if (*at == '\\' && !*++at)
			return NULL;
	}
	return *at ? at + 1 : NULL;
}

/* Behind any value that begins here, NULL if none does. */
static inline const char *kb_live_value(const char *at, int depth)
{
	const char *begin;

	at = kb_live_space(at);
	if (*at == '"')
		return kb_live_string(at);
	if (*at == '{' || *at == '[') {
		char last = *at == '{' ? '}' : ']';

		if (depth >= KB_LIVE_DEEPEST)
			return NULL;
		at = kb_live_space(at + 1);
		if (*at == last)
			return at + 1;
		for (;; at++) {
			if (last == '}') {
				at = kb_live_string(kb_live_space(at));
				if (!at || *(at = kb_live_space(at)) != ':')
					return NULL;
				at++;
			}
			at = kb_live_value(at, depth + 1);
			if (!at)
				return NULL;
			at = kb_live_space(at);
			if (*at == last)
				return at + 1;
			if (*at != ',')
				return NULL;
		}
	}
	begin = at;
	at += strcspn(at, " \t\r\n,]}:\"[{");
	return at == begin ? NULL : at;
}

/* The value of an object's key, NULL if it has none. */
static inline const char *kb_live_key(const char *at, const char *key,
				      size_t length)
{
	at = kb_live_space(at);
	if (*at++ != '{')
		return NULL;
	for (;; at++) {
		const char *name = kb_live_space(at);
		const char *value = kb_live_string(name);
		int found;

		if (!value)
			return NULL;
		found = (size_t)(value - name) == length + 2 &&
			!strncmp(name + 1, key, length);
		value = kb_live_space(value);
		if (*value++ != ':')
			return NULL;
		if (found)
			return kb_live_space(value);
		at = kb_live_value(value, 0);
		if (!at || *(at = kb_live_space(at)) != ',')
			return NULL;
	}
}

/*
 * The element of an array that a selector names: a number from 0, or key=text for
 * the first object in which the key has this text.
 */
static inline const char *kb_live_element(const char *at, const char *selector,
					  size_t length)
{
	const char *equals = (const char *)memchr(selector, '=', length);
	size_t wanted = 0;

	at = kb_live_space(at);
	if (!length || *at++ != '[')
		return NULL;
	for (size_t i = 0; !equals && i < length; i++) {
		if (selector[i] < '0' || selector[i] > '9' ||
		    wanted > (size_t)1 << 32)
			return NULL;
		wanted = wanted * 10 + (size_t)(selector[i] - '0');
	}
	for (size_t i = 0;; i++, at++) {
		const char *text;
		size_t rest;

		at = kb_live_space(at);
		if (!equals && i == wanted)
			return at;
		if (equals) {
			text = kb_live_key(at, selector,
					   (size_t)(equals - selector));
			rest = length - (size_t)(equals - selector) - 1;
			if (text && *text == '"' &&
			    !strncmp(text + 1, equals + 1, rest) &&
			    text[1 + rest] == '"')
				return at;
		}
		at = kb_live_value(at, 0);
		if (!at || *(at = kb_live_space(at)) != ',')
			return NULL;
	}
}

/* Longer than any number of the agent's. */
#define KB_LIVE_DIGITS 63

/*
 * Reads the number that begins here, which strtod does only with the decimal
 * point of the program's locale; -1 and EINVAL if it is none.
 */
static inline int kb_live_double(const char *at, double *value)
{
	size_t size = strspn(at, "+-.0123456789eE");
	const char *dot = (const char *)memchr(at, '.', size);
	size_t whole = dot ? (size_t)(dot - at) : size;
	char text[KB_LIVE_DIGITS + 32];
	char *end = text;
	double number = 0;

	if (size <= KB_LIVE_DIGITS &&
	    (!at[size] || strchr(" \t\r\n,]}", at[size]))) {
		snprintf(text, sizeof(text), "%.*s%s%.*s", (int)whole, at,
			 dot ? nl_langinfo(RADIXCHAR) : "",
			 dot ? (int)(size - whole - 1) : 0, dot ? dot + 1 : "");
		number = strtod(text, &end);
	}
	if (end == text || *end) {
		errno = EINVAL;
		return -1;
	}
	*value = number;
	return 0;
}

/*
 * Finds a number in a line: names of an object's keys with dots between them, and
 * [N] or [key=text] for an array's elements. 0, or -1: ENOENT where there is
 * none, EINVAL where it is not whole.
 */
static inline int kb_live_number(const char *line, const char *path,
				 double *value)
{
	const char *at = line;

	while (at && *path) {
		size_t length;

		if (*path == '.')
			path++;
		if (*path == '[') {
			length = strcspn(++path, "]");
			at = kb_live_element(at, path, length);
			path += length;
			if (*path++ != ']')
				at = NULL;
		} else {
			length = strcspn(path, ".[");
			at = kb_live_key(at, path, length);
			path += length;
		}
		if (!at)
			break;
	}
	if (!at || (*at != '-' && (*at < '0' || *at > '9'))) {
		errno = ENOENT;
		return -1;
	}
	return kb_live_double(at, value);
}

#endif
