/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
#include <errno.h>
#include <stdlib.h>

#include "submit/nearmiss.h"
#include "sandbox.h"
#include "submit/snapshot.h"
#include "tap.h"

#define HEAD "kernel-broker-snapshot 1\ngenerated 2026-11-20T10:00:00Z\n"
#define BODY                                 \
	"profile stock 1 1 available\n"      \
	"profile mitgcm 3 1,2,3 available\n" \
	"profile broken 1 1 quarantined\n"
#define END "end\n"

static bool offers(const struct snapshot *s, const char *text)
{
	struct ref ref;
	const struct snapshot_entry *entry;

	if (ref_parse(text, &ref) != REF_OK)
		return false;
	entry = snapshot_find(s, ref.name);
	return entry && snapshot_offers(entry, &ref);
}

static void test_good(void)
{
	struct snapshot s;

	sandbox_write("good", HEAD BODY "later-word of a later broker\n" END
					"what follows is not read\n");
	if (!ok(snapshot_load(sandbox_path("good"), &s) == 0, "a good one"))
		return;
	is_int(s.count, 3, "three profiles");
	is_int(snapshot_find(&s, "mitgcm")->default_version, 3, "default");
	ok(offers(&s, "stock") && offers(&s, "mitgcm"), "both are offered");
	ok(offers(&s, "mitgcm@1") && offers(&s, "mitgcm@3"), "old ones too");
	ok(!offers(&s, "mitgcm@4") && !offers(&s, "mitgcm@33"), "no others");
	ok(!offers(&s, "broken") && !offers(&s, "broken@1"), "quarantined");
	ok(!snapshot_find(&s, "mitgc"), "a part of a name is no name");
	snapshot_free(&s);
	ok(!s.text && !s.entries && !s.count, "nothing is left");
	ok(snapshot_parse(HEAD END, strlen(HEAD END), &s) == 0, "an empty one");
	snapshot_free(&s);
}

static void test_bad(void)
{
	static const struct {
		const char *text;
		int error;
	} cases[] = {
		{ "", ENODATA },
		{ "\n", EBADMSG },
		{ HEAD BODY, ENODATA },
		{ HEAD BODY "end", ENODATA },
		{ HEAD BODY "profile mit", ENODATA },
		{ "kernel-broker-snapshot 2\n" BODY END, EBADMSG },
		{ " " HEAD BODY END, EBADMSG },
		{ BODY END, EBADMSG },
		{ HEAD "profile a 1 1\n" END, EBADMSG },
		{ HEAD "profile a 1 1 available more\n" END, EBADMSG },
		{ HEAD "profile a 1 1 maybe\n" END, EBADMSG },
		{ HEAD "profile a  1 1 available\n" END, EBADMSG },
		{ HEAD "profile a 0 0 available\n" END, EBADMSG },
		{ HEAD "profile a 2 1 available\n" END, EBADMSG },
		{ HEAD "profile a 1 1, available\n" END, EBADMSG },
		{ HEAD "profile a 1 ,1 available\n" END, EBADMSG },
		{ HEAD "profile a 1 1,,2 available\n" END, EBADMSG },
		{ HEAD "profile a 1 1,x available\n" END, EBADMSG },
		{ HEAD "profile A 1 1 available\n" END, EBADMSG },
		{ HEAD "profile a@1 1 1 available\n" END, EBADMSG },
		{ HEAD "profile \n" END, EBADMSG },
		{ HEAD "profile a 1 1 available\r\n" END, EBADMSG },
		{ HEAD "profile a 1 1 available\nprofile a 1 1 available\n" END,
		  EBADMSG },
	};
	struct snapshot s = { .text = NULL };

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		is_int(snapshot_parse(cases[i].text, strlen(cases[i].text), &s),
		       cases[i].error, "bad snapshot %zu", i);
	is_int(snapshot_parse(HEAD "\0" END, sizeof(HEAD "\0" END) - 1, &s),
	       EBADMSG, "a NUL inside");
	is_int(snapshot_load(sandbox_path("none"), &s), ENOENT, "no file");
	sandbox_write("dir/file", "");
	is_int(snapshot_load(sandbox_path("dir"), &s), EINVAL, "a folder");
}

/* Cut anywhere, the file must count as absent. */
static void test_truncated(void)
{
	static const char whole[] = HEAD BODY END;
	struct snapshot s;
	size_t wrong = 0;

	for (size_t size = 0; size < strlen(whole); size++) {
		if (snapshot_parse(whole, size, &s) == 0) {
			snapshot_free(&s);
			wrong++;
		}
	}
	is_int(wrong, 0, "no truncated snapshot is believed");
}

static void test_huge(void)
{
	size_t size = SNAPSHOT_LIMIT + 1;
	char *text = malloc(size + 1);
	struct snapshot s;
	size_t used;

	memset(text, 'x', size);
	is_int(snapshot_parse(text, size, &s), EFBIG, "above the limit");
	sandbox_write_bytes("huge", text, size);
	is_int(snapshot_load(sandbox_path("huge"), &s), EFBIG, "as a file");
	/* One line as long as a file may be. */
	memcpy(text, HEAD, strlen(HEAD));
	is_int(snapshot_parse(text, SNAPSHOT_LIMIT, &s), ENODATA,
	       "a huge line without an end");
	memcpy(text + SNAPSHOT_LIMIT - 5, "\nend\n", 5);
	is_int(snapshot_parse(text, SNAPSHOT_LIMIT, &s), 0,
	       "a huge line of a later broker");
	snapshot_free(&s);
	memcpy(text + strlen(HEAD), "profile ", 8);
	is_int(snapshot_parse(text, SNAPSHOT_LIMIT, &s), EBADMSG,
	       "a huge name");
	/* Many profiles. */
	used = (size_t)sprintf(text, HEAD);
	for (int i = 0; i < 5000; i++)
		used += (size_t)sprintf(text + used,
					"profile p%d 1 1 available\n", i);
	used += (size_t)sprintf(text + used, END);
	is_int(snapshot_parse(text, used, &s), 0, "5000 profiles");
	ok(offers(&s, "p4999@1"), "the last one is found");
	snapshot_free(&s);
	free(text);
}

static void test_distance(void)
{
	static const struct {
		const char *a, *b;
		size_t distance;
	} cases[] = {
		{ "mitgcm", "mitgcm", 0 },
		{ "mitgmc", "mitgcm", 1 },
		{ "mitgc", "mitgcm", 1 },
		{ "mitgcmm", "mitgcm", 1 },
		{ "mitgxm", "mitgcm", 1 },
		{ "imtgmc", "mitgcm", 2 },
		{ "", "abc", 3 },
		{ "abc", "", 3 },
		{ "", "", 0 },
		{ "kitten", "sitting", 3 },
		{ "ab", "ba", 1 },
		{ "abcd", "wxyz", 4 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		is_int(nearmiss_distance(cases[i].a, cases[i].b),
		       cases[i].distance, "%s to %s", cases[i].a, cases[i].b);
		is_int(nearmiss_distance(cases[i].b, cases[i].a),
		       cases[i].distance, "%s to %s", cases[i].b, cases[i].a);
	}
}

static void near(const struct snapshot *s, const char *name, const char *want)
{
	const char *found[NEARMISS_MAX];
	char got[256] = "";
	size_t count = nearmiss_find(s, name, found);

	for (size_t i = 0; i < count; i++) {
		strcat(got, i ? " " : "");
		strcat(got, found[i]);
	}
	is_text(got, want, "near %s", name);
}

static void test_nearmiss(void)
{
	static const char text[] = HEAD "profile stock 1 1 available\n"
					"profile mitgcm 1 1 available\n"
					"profile mitgcm2 1 1 available\n"
					"profile mitgdm 1 1 quarantined\n"
					"profile lammps 1 1 available\n"
					"profile io 1 1 available\n"
					"profile io1 1 1 available\n"
					"profile io2 1 1 available\n"
					"profile io3 1 1 available\n" END;
	struct snapshot s;

	if (!ok(snapshot_parse(text, strlen(text), &s) == 0, "a catalog"))
		return;
	near(&s, "mitgmc", "mitgcm mitgcm2");
	near(&s, "mitgcm1", "mitgcm mitgcm2");
	near(&s, "mitgdm", "mitgcm mitgcm2");
	near(&s, "lamps", "lammps");
	near(&s, "lam", "lammps");
	near(&s, "lammps-2024", "lammps");
	near(&s, "stok", "stock");
	near(&s, "zebra", "");
	near(&s, "x", "");
	near(&s, "io", "io io1 io2");
	near(&s, "io4", "io io1 io2");
	snapshot_free(&s);
}

/* The nearest comes first, also where the catalog has it last. */
static void test_nearmiss_order(void)
{
	static const char text[] = HEAD "profile mitgcm12 1 1 available\n"
					"profile mitgcm2 1 1 available\n"
					"profile mitgcm3 1 1 available\n"
					"profile mitgcm 1 1 available\n"
					"profile mitgc 1 1 available\n" END;
	struct snapshot s;

	if (!ok(snapshot_parse(text, strlen(text), &s) == 0, "a catalog"))
		return;
	near(&s, "mitgcm", "mitgcm mitgcm2 mitgcm3");
	near(&s, "mitgcn", "mitgcm mitgc mitgcm2");
	snapshot_free(&s);
}

int main(void)
{
	sandbox_make();
	test_good();
	test_bad();
	test_truncated();
	test_huge();
	test_distance();
	test_nearmiss();
	test_nearmiss_order();
	return tap_end();
}
