/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
/* The header for applications, against a socket like the agent's. */
#define KB_LIVE_FOLDER folder
static char folder[64];

#include "kernel-broker/live.h"
#include "tap.h"

#include <locale.h>
#include <pthread.h>
#include <sys/stat.h>

#define LINE                                                                  \
	"{\"format\": 3, \"ended\": false, \"result\": {\"job\": 71, "        \
	"\"nodes\": [{\"name\": \"n1\", \"system_ns\": 1500}, "               \
	"{\"name\": \"n\\\"2\", \"system_ns\": -2.5e3}], "                    \
	"\"syscalls\": [{\"name\": \"read\", \"calls\": {\"n\": 4}}, "        \
	"{\"name\": \"write\", \"calls\": {\"n\": 179579}}], \"empty\": [], " \
	"\"none\": {}, \"text\": \"17\", \"null\": null}}"

static void numbers(void)
{
	static const struct {
		const char *path;
		double want;
	} found[] = {
		{ "format", 3 },
		{ "result.job", 71 },
		{ "result.nodes[0].system_ns", 1500 },
		{ "result.nodes[1].system_ns", -2500 },
		{ "result.nodes[name=n1].system_ns", 1500 },
		{ "result.syscalls[name=write].calls.n", 179579 },
	};
	static const char *const absent[] = {
		"ended",
		"result",
		"result.nodes",
		"result.nodes[2].system_ns",
		"result.nodes[x].system_ns",
		"result.nodes[].system_ns",
		"result.nodes[0",
		"result.nodes[99999999999999999999].system_ns",
		"result.nodes[name=n].system_ns",
		"result.syscalls[name=writev].calls.n",
		"result.empty[0]",
		"result.none.x",
		"result.text",
		"result.null",
		"forma",
		"formats",
		".",
		"",
	};
	double value;

	for (size_t i = 0; i < sizeof(found) / sizeof(found[0]); i++) {
		value = 0;
		is_int(kb_live_number(LINE, found[i].path, &value), 0, "%s",
		       found[i].path);
		ok(value == found[i].want, "its value");
	}
	for (size_t i = 0; i < sizeof(absent) / sizeof(absent[0]); i++) {
		errno = 0;
		is_int(kb_live_number(LINE, absent[i], &value), -1, "no %s",
		       absent[i]);
		is_int(errno, ENOENT, "and why");
	}
}

/* JSON has a point in every locale. */
static void locales(void)
{
	static const char line[] =
		"{\"share\": 0.62, \"n\": -1.5e+2, \"many\": [2, 3.25]}";
	double value = 0;

	if (!setlocale(LC_NUMERIC, "de_DE.UTF-8") &&
	    !setlocale(LC_NUMERIC, "de_DE")) {
		ok(1, "# SKIP no locale with a comma");
		return;
	}
	is_text(localeconv()->decimal_point, ",", "a locale with a comma");
	is_int(kb_live_number(line, "share", &value), 0, "a share");
	ok(value > 0.61 && value < 0.63, "its value");
	is_int(kb_live_number(line, "n", &value), 0, "a negative number");
	ok(value == -150, "its value");
	is_int(kb_live_number(line, "many[1]", &value), 0, "an element");
	ok(value == 3.25, "its value");
	setlocale(LC_NUMERIC, "C");
}

static void no_numbers(void)
{
	static const char *const line[] = {
		"{\"n\": 1.2.3}",
		"{\"n\": 1e}",
		"{\"n\": -}",
		"{\"n\": -inf}",
		"{\"n\": 0x12}",
		"{\"n\": 1.0000000000000000000000000000000000000000"
		"000000000000000000000001}",
	};
	double value = 7;

	for (size_t i = 0; i < sizeof(line) / sizeof(line[0]); i++) {
		errno = 0;
		is_int(kb_live_number(line[i], "n", &value), -1, "%s", line[i]);
		is_int(errno, EINVAL, "and why");
		ok(value == 7, "the value stays");
	}
}

/* What ends early, or is no JSON, is read to its end and no further. */
static void damaged(void)
{
	static const char path[] = "result.syscalls[name=write].calls.n";
	size_t whole = strlen(LINE);
	int found = 0;
	double value;

	for (size_t cut = 0; cut < whole; cut++) {
		char *line = strndup(LINE, cut);

		found += !kb_live_number(line, path, &value);
		line[cut / 2] = (char)('!' + cut % 90);
		kb_live_number(line, path, &value);
		free(line);
	}
	ok(found > 0 && found < 80, "found once the number has come");

	char deep[400];

	memset(deep, '[', sizeof(deep) - 1);
	deep[sizeof(deep) - 1] = '\0';
	is_int(kb_live_number(deep, "[1]", &value), -1, "nested without end");
}

static void *serve(void *data)
{
	int fd = accept(*(int *)data, NULL, NULL);
	char large[200000];

	memset(large, 'x', sizeof(large));
	for (size_t i = 0; i < 3; i++) {
		large[sizeof(large) - 1] = '\n';
		if (write(fd, "one\ntw", 6) != 6 || usleep(1000) ||
		    write(fd, "o\n", 2) != 2 ||
		    write(fd, large, sizeof(large)) != sizeof(large))
			break;
	}
	if (write(fd, "cut", 3) == 3)
		close(fd);
	return NULL;
}

static void lines(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int listener = socket(AF_UNIX, SOCK_STREAM, 0), fd, whole = 0;
	struct kb_live_line line = { 0 };
	pthread_t server;

	snprintf(folder, sizeof(folder), "/tmp/kb-live-XXXXXX");
	ok(mkdtemp(folder) != NULL, "a folder");
	errno = 0;
	is_int(kb_live_open("7"), -1, "a job without a run");
	is_int(errno, ENOENT, "says so");
	is_int(kb_live_open("../7"), -1, "a path is no job");
	is_int(errno, EINVAL, "says so");
	unsetenv("SLURM_JOB_ID");
	is_int(kb_live_open(NULL), -1, "no job at all");

	snprintf(address.sun_path, sizeof(address.sun_path), "%.60s/7.sock",
		 folder);
	ok(!bind(listener, (struct sockaddr *)&address, sizeof(address)) &&
		   !listen(listener, 1),
	   "a socket");
	pthread_create(&server, NULL, serve, &listener);
	setenv("SLURM_JOB_ID", "7", 1);
	fd = kb_live_open(NULL);
	ok(fd >= 0, "connected");
	for (int i = 0; i < 3; i++) {
		whole += kb_live_next(fd, &line) == 3 &&
			 !strcmp(line.text, "one");
		whole += kb_live_next(fd, &line) == 3 &&
			 !strcmp(line.text, "two");
		whole += kb_live_next(fd, &line) == 199999 &&
			 strlen(line.text) == 199999;
	}
	is_int(whole, 9, "lines of any length, and in parts");
	is_int(kb_live_next(fd, &line), 0, "the end; what was cut is no line");
	kb_live_close(fd, &line);
	ok(!line.text, "and nothing is left");
	pthread_join(server, NULL);
	close(listener);
	unlink(address.sun_path);
	rmdir(folder);
}

int main(void)
{
	numbers();
	locales();
	no_numbers();
	damaged();
	lines();
	return tap_end();
}
