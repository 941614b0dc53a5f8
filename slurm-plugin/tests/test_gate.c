/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
#include <errno.h>

#include "node/gate.h"
#include "sandbox.h"
#include "tap.h"

/* A node that was prepared for job 7 with mitgcm@3, and is fine. */
static struct gate_facts profile_node(void)
{
	struct gate_facts facts = {
		.job = 7,
		.state = { .boot_id = SANDBOX_BOOT_ID,
			   .build_id = SANDBOX_BUILD_ID,
			   .release = SANDBOX_RELEASE,
			   .kernel = { .name = "mitgcm", .version = 3 },
			   .jobs = "7",
			   .attested = true },
		.kernel = { .boot_id = SANDBOX_BOOT_ID,
			    .build_id = SANDBOX_BUILD_ID,
			    .release = SANDBOX_RELEASE,
			    .booted_by_broker = true },
	};

	return facts;
}

/* A node that the firmware has booted, with an agent. */
static struct gate_facts stock_node(void)
{
	struct gate_facts facts = profile_node();

	facts.state.kernel = (struct ref){ .name = "stock", .version = 1 };
	facts.state.jobs[0] = '\0';
	facts.kernel.booted_by_broker = false;
	return facts;
}

static struct gate_facts without_state(struct gate_facts facts, int error)
{
	facts.state_error = error;
	memset(&facts.state, 0, sizeof(facts.state));
	return facts;
}

static void judge(struct gate_facts facts, const char *ref, const char *want,
		  const char *what)
{
	struct ref parsed;
	char cause[GATE_CAUSE_SIZE];
	bool passed;

	if (ref) {
		if (ref_parse(ref, &parsed) != REF_OK)
			ok(false, "the test's own ref %s", ref);
		facts.ref = &parsed;
	}
	passed = gate_judge(&facts, cause);
	is_int(passed, want == NULL, "%s: %s", what,
	       want ? "refused" : "passes");
	if (want)
		has_text(cause, want, "%s: the cause", what);
	else
		is_text(cause, "", "%s: no cause", what);
}

static void test_profile(void)
{
	struct gate_facts f;

	judge(profile_node(), "mitgcm", NULL, "the profile");
	judge(profile_node(), "mitgcm@3", NULL, "the version");
	judge(profile_node(), "mitgcm@2", "another version", "a version");
	judge(profile_node(), "other", "another profile", "another");
	judge(stock_node(), "mitgcm", "another profile", "a stock node");

	f = profile_node();
	f.state.attested = false;
	judge(f, "mitgcm", "not attested", "not attested");

	f = profile_node();
	strcpy(f.state.jobs, "8");
	judge(f, "mitgcm", "prepared for job 8, this is job 7", "another job");
	strcpy(f.state.jobs, "");
	judge(f, "mitgcm", "prepared for job (none)", "no job");
	strcpy(f.state.jobs, "6,7,8");
	judge(f, "mitgcm", NULL, "one job of several");

	f = profile_node();
	f.kernel.boot_id[0] = '9';
	judge(f, "mitgcm", "another boot", "an older boot");
	f.kernel.boot_id[0] = '\0';
	judge(f, "mitgcm", "now unknown", "an unknown boot");

	f = profile_node();
	f.kernel.build_id[0] = '0';
	judge(f, "mitgcm", "claims build id", "another build");
	f.kernel.build_id[0] = '\0';
	judge(f, "mitgcm", "has none", "a kernel without build id");

	judge(without_state(profile_node(), ENOENT), "mitgcm", "no node.state",
	      "no state");
	judge(without_state(profile_node(), EBADMSG), "mitgcm", "damaged",
	      "a damaged state");
	judge(without_state(profile_node(), EFBIG), "mitgcm", "damaged",
	      "a huge state");
	judge(without_state(profile_node(), EACCES), "mitgcm",
	      "cannot be read: Permission denied", "an unreadable state");
	judge(without_state(stock_node(), ENOENT), "mitgcm", "no node.state",
	      "a node without an agent");
}

/* A job that names stock is judged as one that names nothing. */
static void test_plain(const char *ref)
{
	struct gate_facts f;

	judge(stock_node(), ref, NULL, "a stock node");
	judge(profile_node(), ref, "not gone back to stock",
	      "a profile's kernel");

	/* kexec'd back to stock. */
	f = stock_node();
	f.kernel.booted_by_broker = true;
	judge(f, ref, NULL, "an attested return");
	f.state.attested = false;
	judge(f, ref, "has not attested it", "a return not attested");
	f.kernel.booted_by_broker = false;
	judge(f, ref, NULL, "the firmware's, while the broker is away");

	f = stock_node();
	f.kernel.build_id[0] = '0';
	judge(f, ref, "claims build id", "a false claim");

	f = stock_node();
	f.kernel.boot_id[0] = '9';
	judge(f, ref, NULL, "an old claim, the firmware's kernel");
	f.kernel.booted_by_broker = true;
	judge(f, ref, "it is not proven: node.state is from another",
	      "an old claim, the broker's kernel");
	/* An old claim of a profile says nothing about now either. */
	f = profile_node();
	f.kernel.boot_id[0] = '9';
	f.kernel.booted_by_broker = false;
	judge(f, ref, NULL, "a profile before the last boot");

	judge(without_state(stock_node(), ENOENT), ref, NULL,
	      "no agent, the firmware's kernel");
	judge(without_state(stock_node(), EBADMSG), ref, NULL,
	      "a damaged state, the firmware's kernel");
	judge(without_state(profile_node(), ENOENT), ref,
	      "it is not proven: the node's agent has not said",
	      "no state, the broker's kernel");
	judge(without_state(profile_node(), EBADMSG), ref,
	      "it is not proven: node.state is damaged",
	      "a damaged state, the broker's kernel");
}

/* Whatever one fact is changed to, a job for a profile passes only once. */
static void test_every_combination(void)
{
	static const char *const refs[] = { NULL,       "stock",    "mitgcm",
					    "mitgcm@3", "mitgcm@2", "other" };
	int passes = 0, wrong = 0;

	for (unsigned int bits = 0; bits < 64; bits++) {
		for (size_t w = 0; w < 6; w++) {
			struct gate_facts f =
				bits & 1 ? stock_node() : profile_node();
			char cause[GATE_CAUSE_SIZE];
			struct ref ref;
			bool wants = w >= 2, holds;

			f.kernel.booted_by_broker = bits & 2;
			if (bits & 4)
				f.kernel.boot_id[0] = '9';
			if (bits & 8)
				f.kernel.build_id[0] = '0';
			if (bits & 16)
				f.state.attested = false;
			if (bits & 32)
				f = without_state(f, ENOENT);
			if (refs[w] && ref_parse(refs[w], &ref) == 0)
				f.ref = &ref;
			holds = !(bits & (4 | 8 | 32));
			if (!gate_judge(&f, cause)) {
				wrong += !*cause;
				continue;
			}
			passes++;
			if (wants)
				wrong += !holds || (bits & (1 | 16)) || w > 3;
			else
				wrong += !(bits & 1) && holds;
		}
	}
	is_int(wrong, 0, "no combination of facts lets a job pass wrongly");
	ok(passes > 0, "%d combinations pass", passes);
}

static void test_describe(void)
{
	struct gate_facts f = profile_node();
	char text[256];

	gate_describe_node(&f, text, sizeof(text));
	is_text(text, "mitgcm@3 (" SANDBOX_RELEASE ")", "a claim");
	f.kernel.boot_id[0] = '9';
	gate_describe_node(&f, text, sizeof(text));
	is_text(text, SANDBOX_RELEASE, "an old claim");
	f = without_state(f, ENOENT);
	f.kernel.release[0] = '\0';
	gate_describe_node(&f, text, sizeof(text));
	is_text(text, "unknown release", "nothing known");
}

int main(void)
{
	test_profile();
	test_plain(NULL);
	test_plain("stock");
	test_plain("stock@1");
	test_every_combination();
	test_describe();
	return tap_end();
}
