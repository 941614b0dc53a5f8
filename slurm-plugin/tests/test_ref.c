/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
#include "tap.h"
#include "common/ref.h"

#define A64 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

static void test_good(void)
{
	static const struct {
		const char *text;
		const char *name;
		uint32_t version;
	} cases[] = {
		{ "mitgcm", "mitgcm", 0 },
		{ "mitgcm@3", "mitgcm", 3 },
		{ "a", "a", 0 },
		{ "0", "0", 0 },
		{ "a@1", "a", 1 },
		{ "m-i.t_9", "m-i.t_9", 0 },
		{ "x@999999999", "x", 999999999 },
		{ A64, A64, 0 },
		{ A64 "@999999999", A64, 999999999 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct ref ref = { .version = 77 };
		char text[REF_TEXT_SIZE];

		is_int(ref_parse(cases[i].text, &ref), REF_OK, "%s is good",
		       cases[i].text);
		is_text(ref.name, cases[i].name, "its name");
		is_int(ref.version, cases[i].version, "its version");
		ref_format(&ref, text);
		is_text(text, cases[i].text, "written out again");
	}
}

static void test_bad(void)
{
	static const struct {
		const char *text;
		enum ref_error error;
	} cases[] = {
		{ NULL, REF_EMPTY },
		{ "", REF_EMPTY },
		{ "a,b", REF_LIST },
		{ "a@1,b", REF_LIST },
		{ ",", REF_LIST },
		{ "@1", REF_BAD_NAME },
		{ "@", REF_BAD_NAME },
		{ "A", REF_BAD_NAME },
		{ "mit gcm", REF_BAD_NAME },
		{ " mitgcm", REF_BAD_NAME },
		{ "mitgcm\n", REF_BAD_NAME },
		{ "../etc", REF_BAD_NAME },
		{ ".a", REF_BAD_NAME },
		{ "-a", REF_BAD_NAME },
		{ "_a", REF_BAD_NAME },
		{ "a.", REF_BAD_NAME },
		{ "a-", REF_BAD_NAME },
		{ "a_@1", REF_BAD_NAME },
		{ "-", REF_BAD_NAME },
		{ "a/b", REF_BAD_NAME },
		{ "a=b", REF_BAD_NAME },
		{ "a$(id)", REF_BAD_NAME },
		{ "\303\244", REF_BAD_NAME },
		{ A64 "a", REF_BAD_NAME },
		{ A64 "a@1", REF_BAD_NAME },
		{ "a@", REF_BAD_VERSION },
		{ "a@0", REF_BAD_VERSION },
		{ "a@01", REF_BAD_VERSION },
		{ "a@+1", REF_BAD_VERSION },
		{ "a@-1", REF_BAD_VERSION },
		{ "a@1 ", REF_BAD_VERSION },
		{ "a@ 1", REF_BAD_VERSION },
		{ "a@1.0", REF_BAD_VERSION },
		{ "a@1@2", REF_BAD_VERSION },
		{ "a@0x1", REF_BAD_VERSION },
		{ "a@1234567890", REF_BAD_VERSION },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct ref ref = { .name = "untouched", .version = 77 };

		is_int(ref_parse(cases[i].text, &ref), cases[i].error,
		       "\"%s\" is refused",
		       cases[i].text && !strchr(cases[i].text, '\n') ?
			       cases[i].text :
			       "(odd)");
		ok(strcmp(ref.name, "untouched") == 0 && ref.version == 77,
		   "and the result is left alone");
		ok(strlen(ref_error_text(cases[i].error)) > 10,
		   "and there is a sentence for it");
	}
}

static struct ref make(const char *text)
{
	struct ref ref = { .version = 0 };

	if (ref_parse(text, &ref) != REF_OK)
		ok(false, "the test's own ref %s", text);
	return ref;
}

static void test_compare(void)
{
	static const struct {
		const char *a, *b;
		bool equal, agree;
	} cases[] = {
		{ "a", "a", true, true },       { "a@1", "a@1", true, true },
		{ "a", "a@1", false, true },    { "a@1", "a", false, true },
		{ "a@1", "a@2", false, false }, { "a", "b", false, false },
		{ "a", "aa", false, false },    { "stock", "a", false, false },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct ref a = make(cases[i].a), b = make(cases[i].b);

		is_int(ref_equal(&a, &b), cases[i].equal, "%s equals %s",
		       cases[i].a, cases[i].b);
		is_int(ref_agree(&a, &b), cases[i].agree, "%s agrees with %s",
		       cases[i].a, cases[i].b);
	}
	struct ref stock = make("stock"), version = make("stock@1");
	struct ref not_stock = make("stock2");

	ok(ref_is_stock(&stock) && ref_is_stock(&version), "stock is stock");
	ok(!ref_is_stock(&not_stock), "stock2 is not");
}

int main(void)
{
	test_good();
	test_bad();
	test_compare();
	return tap_end();
}
