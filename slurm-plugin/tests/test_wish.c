/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
#include "tap.h"
#include "wish.h"

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
		struct wish wish = { .version = 77 };
		char text[WISH_TEXT_SIZE];

		is_int(wish_parse(cases[i].text, &wish), WISH_OK, "%s is good",
		       cases[i].text);
		is_text(wish.name, cases[i].name, "its name");
		is_int(wish.version, cases[i].version, "its version");
		wish_format(&wish, text);
		is_text(text, cases[i].text, "written out again");
	}
}

static void test_bad(void)
{
	static const struct {
		const char *text;
		enum wish_error error;
	} cases[] = {
		{ NULL, WISH_EMPTY },
		{ "", WISH_EMPTY },
		{ "a,b", WISH_LIST },
		{ "a@1,b", WISH_LIST },
		{ ",", WISH_LIST },
		{ "@1", WISH_BAD_NAME },
		{ "@", WISH_BAD_NAME },
		{ "A", WISH_BAD_NAME },
		{ "mit gcm", WISH_BAD_NAME },
		{ " mitgcm", WISH_BAD_NAME },
		{ "mitgcm\n", WISH_BAD_NAME },
		{ "../etc", WISH_BAD_NAME },
		{ ".a", WISH_BAD_NAME },
		{ "-a", WISH_BAD_NAME },
		{ "_a", WISH_BAD_NAME },
		{ "a.", WISH_BAD_NAME },
		{ "a-", WISH_BAD_NAME },
		{ "a_@1", WISH_BAD_NAME },
		{ "-", WISH_BAD_NAME },
		{ "a/b", WISH_BAD_NAME },
		{ "a=b", WISH_BAD_NAME },
		{ "a$(id)", WISH_BAD_NAME },
		{ "\303\244", WISH_BAD_NAME },
		{ A64 "a", WISH_BAD_NAME },
		{ A64 "a@1", WISH_BAD_NAME },
		{ "a@", WISH_BAD_VERSION },
		{ "a@0", WISH_BAD_VERSION },
		{ "a@01", WISH_BAD_VERSION },
		{ "a@+1", WISH_BAD_VERSION },
		{ "a@-1", WISH_BAD_VERSION },
		{ "a@1 ", WISH_BAD_VERSION },
		{ "a@ 1", WISH_BAD_VERSION },
		{ "a@1.0", WISH_BAD_VERSION },
		{ "a@1@2", WISH_BAD_VERSION },
		{ "a@0x1", WISH_BAD_VERSION },
		{ "a@1234567890", WISH_BAD_VERSION },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct wish wish = { .name = "untouched", .version = 77 };

		is_int(wish_parse(cases[i].text, &wish), cases[i].error,
		       "\"%s\" is refused",
		       cases[i].text && !strchr(cases[i].text, '\n') ?
			       cases[i].text :
			       "(odd)");
		ok(strcmp(wish.name, "untouched") == 0 && wish.version == 77,
		   "and the result is left alone");
		ok(strlen(wish_error_text(cases[i].error)) > 10,
		   "and there is a sentence for it");
	}
}

static struct wish make(const char *text)
{
	struct wish wish = { .version = 0 };

	if (wish_parse(text, &wish) != WISH_OK)
		ok(false, "the test's own wish %s", text);
	return wish;
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
		struct wish a = make(cases[i].a), b = make(cases[i].b);

		is_int(wish_equal(&a, &b), cases[i].equal, "%s equals %s",
		       cases[i].a, cases[i].b);
		is_int(wish_agree(&a, &b), cases[i].agree, "%s agrees with %s",
		       cases[i].a, cases[i].b);
	}
	struct wish stock = make("stock"), version = make("stock@1");
	struct wish not_stock = make("stock2");

	ok(wish_is_stock(&stock) && wish_is_stock(&version), "stock is stock");
	ok(!wish_is_stock(&not_stock), "stock2 is not");
}

int main(void)
{
	test_good();
	test_bad();
	test_compare();
	return tap_end();
}
