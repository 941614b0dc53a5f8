/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
#include <errno.h>
#include <stdlib.h>

#include "node/kernel.h"
#include "node/nodestate.h"
#include "sandbox.h"
#include "tap.h"

#define BOOT "boot_id=" SANDBOX_BOOT_ID "\n"
#define BUILD "build_id=" SANDBOX_BUILD_ID "\n"
#define REST "release=6.1.192-mitgcm\nprofile=mitgcm\nversion=3\nattested=1\n"
#define STOCK                                                               \
	"format=1\n" BOOT BUILD "release=6.1.0\nprofile=stock\nversion=0\n" \
	"attested=1\n"
#define GOOD "format=1\n" BOOT BUILD REST "job=1234\n"

static void test_good(void)
{
	struct nodestate s;

	sandbox_write("good", GOOD "later=x=y\nempty=\n");
	if (!ok(nodestate_load(sandbox_path("good"), &s) == 0, "a good one"))
		return;
	is_text(s.boot_id, SANDBOX_BOOT_ID, "boot id");
	is_text(s.build_id, SANDBOX_BUILD_ID, "build id");
	is_text(s.release, "6.1.192-mitgcm", "release");
	is_text(s.kernel.name, "mitgcm", "profile");
	is_int(s.kernel.version, 3, "version");
	is_text(s.jobs, "1234", "job");
	ok(s.attested, "attested");
	is_int(nodestate_parse("format=1\n" BOOT BUILD REST,
			       strlen("format=1\n" BOOT BUILD REST), &s),
	       0, "without a job");
	is_text(s.jobs, "", "which is then empty");
	is_text(s.lost, "", "nothing is lost");
	is_int(nodestate_parse(GOOD "lost=12,13\n", strlen(GOOD "lost=12,13\n"),
			       &s),
	       0, "with jobs whose kernel is lost");
	is_int(nodestate_parse(STOCK, strlen(STOCK), &s), 0,
	       "stock that no catalog knows");
	ok(ref_is_stock(&s.kernel) && !s.kernel.version,
	   "which has no version");
	is_int(nodestate_parse(GOOD "lost=12,13\n", strlen(GOOD "lost=12,13\n"),
			       &s),
	       0, "once more");
	ok(nodestate_lost_job(&s, 12) && nodestate_lost_job(&s, 13) &&
		   !nodestate_lost_job(&s, 1234) && !nodestate_has_job(&s, 12),
	   "which are others than those it was prepared for");
}

static void test_bad(void)
{
	static const char *const cases[] = {
		"\n",
		"format\n",
		"format=2\n" BOOT BUILD REST,
		BOOT BUILD REST,
		"format=1\n" BUILD REST,
		"format=1\n" BOOT REST,
		"format=1\n" BOOT BUILD,
		"format=1\nformat=1\n" BOOT BUILD REST,
		GOOD "attested=1\n",
		GOOD "profile=stock\n",
		GOOD "no equals sign\n",
		GOOD "unfinished=lin",
		"format=1\nboot_id=short\n" BUILD REST,
		"format=1\nboot_id=8AD0C5A4-1111-2222-3333-444455556666\n" BUILD
			REST,
		"format=1\n" BOOT "build_id=XYZ\n" REST,
		"format=1\n" BOOT "build_id=\n" REST,
		"format=1\n" BOOT BUILD
		"release=\nprofile=a\nversion=1\nattested=1\n",
		"format=1\n" BOOT BUILD
		"release=a b\nprofile=a\nversion=1\nattested=1\n",
		"format=1\n" BOOT BUILD
		"release=a\nprofile=A\nversion=1\nattested=1\n",
		"format=1\n" BOOT BUILD
		"release=a\nprofile=a@1\nversion=1\nattested=1\n",
		"format=1\n" BOOT BUILD
		"release=a\nprofile=a\nversion=0\nattested=1\n",
		"format=1\n" BOOT BUILD
		"release=a\nprofile=a\nversion=1\nattested=yes\n",
		"format=1\n" BOOT BUILD
		"release=a\nprofile=a\nversion=1\nattested=11\n",
		"format=1\n" BOOT BUILD REST "job=12 13\n",
		"format=1\n" BOOT BUILD REST "job=-1\n",
		GOOD "lost=12 13\n",
		GOOD "lost=-1\n",
		GOOD "lost=1\nlost=1\n",
	};
	struct nodestate s;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		is_int(nodestate_parse(cases[i], strlen(cases[i]), &s), EBADMSG,
		       "bad node.state %zu", i);
	is_int(nodestate_parse("", 0, &s), EBADMSG, "an empty one");
	is_int(nodestate_parse(GOOD "\0", sizeof(GOOD), &s), EBADMSG,
	       "a NUL inside");
	is_int(nodestate_load(sandbox_path("none"), &s), ENOENT, "no file");
}

static void test_truncated(void)
{
	/* The last line must not be one that may be missing. */
	static const char whole[] = "job=1\nformat=1\n" BOOT BUILD REST;
	struct nodestate s;
	size_t wrong = 0;

	for (size_t size = 0; size < strlen(whole); size++)
		wrong += nodestate_parse(whole, size, &s) == 0;
	is_int(wrong, 0, "no truncated node.state is believed");
	is_int(nodestate_parse(whole, strlen(whole), &s), 0, "the whole is");
}

static void test_long(void)
{
	static char text[NODESTATE_LIMIT + 2];
	struct nodestate s;
	size_t head = strlen(GOOD);

	memset(text, 'x', sizeof(text));
	is_int(nodestate_parse(text, NODESTATE_LIMIT + 1, &s), EFBIG,
	       "above the limit");
	memcpy(text, GOOD "later=", head + 6);
	text[NODESTATE_LIMIT - 1] = '\n';
	is_int(nodestate_parse(text, NODESTATE_LIMIT, &s), 0,
	       "a huge line of a later agent");
	memcpy(text, "job=", 4);
	is_int(nodestate_parse(text, NODESTATE_LIMIT, &s), EBADMSG,
	       "a huge job list");
}

static void test_jobs(void)
{
	static const struct {
		const char *jobs;
		uint32_t job;
		bool has;
	} cases[] = {
		{ "", 0, false },
		{ "1234", 1234, true },
		{ "1234", 123, false },
		{ "1234", 234, false },
		{ "1234", 12345, false },
		{ "1,22,333", 1, true },
		{ "1,22,333", 22, true },
		{ "1,22,333", 333, true },
		{ "1,22,333", 33, false },
		{ ",,22,", 22, true },
		{ ",,", 0, false },
		{ "4294967295", 4294967295U, true },
		{ "4294967296", 0, false },
		{ "00000000000000001234", 1234, false },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct nodestate s = { .attested = true };

		strcpy(s.jobs, cases[i].jobs);
		is_int(nodestate_has_job(&s, cases[i].job), cases[i].has,
		       "job %u in \"%s\"", cases[i].job, cases[i].jobs);
	}
}

static void test_notes(void)
{
	/* What a real kernel gives: the build id, then notes of others. */
	static const char real[] =
		"\4\0\0\0\24\0\0\0\3\0\0\0GNU\0"
		"\x48\xdc\x54\x0c\x8b\x76\x39\x38\x04\xca"
		"\x80\x88\xdb\xfa\x7d\x42\x91\x1a\x94\x44"
		"\6\0\0\0\4\0\0\0\1\1\0\0Linux\0\0\0\0\0\0\0";
	static const char second[] =
		"\6\0\0\0\1\0\0\0\1\1\0\0Linux\0\0\0\7\0\0\0"
		"\4\0\0\0\2\0\0\0\3\0\0\0GNU\0\xab\xcd";
	static const char other[] = "\4\0\0\0\4\0\0\0\3\0\0\0Xen\0abcd";
	static const char huge[] =
		"\4\0\0\0\xff\xff\xff\xff\3\0\0\0GNU\0abcdefgh";
	static const char wrap[] =
		"\xfd\xff\xff\xff\4\0\0\0\3\0\0\0GNU\0abcdefgh";
	static const char none[] = "\4\0\0\0\0\0\0\0\3\0\0\0GNU\0";
	char id[BUILD_ID_MAX + 1];
	size_t wrong = 0;

	ok(kernel_parse_notes(real, sizeof(real) - 1, id), "real notes");
	is_text(id, "48dc540c8b76393804ca8088dbfa7d42911a9444", "their id");
	ok(kernel_parse_notes(second, sizeof(second) - 1, id), "second note");
	is_text(id, "abcd", "its id");
	ok(!kernel_parse_notes(other, sizeof(other) - 1, id), "another's");
	ok(!kernel_parse_notes(huge, sizeof(huge) - 1, id), "a huge size");
	ok(!kernel_parse_notes(wrap, sizeof(wrap) - 1, id), "a huge name");
	ok(!kernel_parse_notes(none, sizeof(none) - 1, id), "an empty id");
	for (size_t size = 0; size < 36; size++) {
		/* A heap copy, so that ASan sees a step beyond the end. */
		char *part = malloc(size + 1);

		memcpy(part, real, size);
		wrong += kernel_parse_notes(part, size, id);
		free(part);
	}
	is_int(wrong, 0, "no part of a note is believed");
}

static void test_cmdline(void)
{
	static const struct {
		const char *text;
		bool token;
	} cases[] = {
		{ "", false },
		{ "root=/dev/sda1 quiet\n", false },
		{ SANDBOX_TOKEN, true },
		{ "root=/dev/sda1 " SANDBOX_TOKEN "\n", true },
		{ "a=\"b " SANDBOX_TOKEN "\"", true },
		{ "notkernelbroker.token=1", false },
		{ "x=kernelbroker.token=1", false },
		{ "kernelbroker.tokens=1", false },
		{ "kernelbroker.token", false },
		{ "kernelbroker.token=", true },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		is_int(kernel_parse_cmdline(cases[i].text), cases[i].token,
		       "command line %zu", i);
}

static void test_read(void)
{
	struct kernel k;

	sandbox_node("root=/dev/sda1 " SANDBOX_TOKEN "\n");
	kernel_read(sandbox_path("proc"), sandbox_path("sys"), &k);
	is_text(k.boot_id, SANDBOX_BOOT_ID, "boot id");
	is_text(k.build_id, SANDBOX_BUILD_ID, "build id");
	is_text(k.release, SANDBOX_RELEASE, "release");
	ok(k.booted_by_broker, "token");
	sandbox_write("proc/sys/kernel/random/boot_id",
		      SANDBOX_BOOT_ID "-and-more\n");
	sandbox_write("sys/kernel/notes", "junk");
	sandbox_write("proc/cmdline", "quiet\n");
	kernel_read(sandbox_path("proc"), sandbox_path("sys"), &k);
	is_text(k.boot_id, "", "an odd boot id is none");
	is_text(k.build_id, "", "odd notes have no build id");
	ok(!k.booted_by_broker, "no token");
	kernel_read(sandbox_path("none"), sandbox_path("none"), &k);
	ok(!*k.boot_id && !*k.build_id && !*k.release, "nothing is known");
	ok(k.booted_by_broker, "and the worst is assumed");
	/* The running machine has all of it. */
	kernel_read("/proc", "/sys", &k);
	is_int(strlen(k.boot_id), BOOT_ID_LENGTH, "a real boot id");
	ok(strlen(k.release) > 3, "a real release");
}

int main(void)
{
	sandbox_make();
	test_good();
	test_bad();
	test_truncated();
	test_long();
	test_jobs();
	test_notes();
	test_cmdline();
	test_read();
	return tap_end();
}
