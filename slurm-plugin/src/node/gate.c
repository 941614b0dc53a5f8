/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
#include "node/gate.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

void gate_read_node(const struct settings *settings, struct gate_facts *facts)
{
	facts->state_error =
		nodestate_load(settings->node_state, &facts->state);
	kernel_read(settings->proc, settings->sys, &facts->kernel);
}

static void say_no_claim(int error, char *cause)
{
	if (error == ENOENT)
		snprintf(cause, GATE_CAUSE_SIZE,
			 "the node's agent has not said what runs "
			 "(no node.state)");
	else if (error == EBADMSG || error == EFBIG)
		snprintf(cause, GATE_CAUSE_SIZE, "node.state is damaged");
	else
		snprintf(cause, GATE_CAUSE_SIZE,
			 "node.state cannot be read: %s", strerror(error));
}

bool gate_claim_is_current(const struct gate_facts *facts)
{
	return !facts->state_error &&
	       strcmp(facts->state.boot_id, facts->kernel.boot_id) == 0;
}

bool gate_claim_holds(const struct gate_facts *facts, char *cause)
{
	if (facts->state_error) {
		say_no_claim(facts->state_error, cause);
		return false;
	}
	if (!gate_claim_is_current(facts)) {
		snprintf(cause, GATE_CAUSE_SIZE,
			 "node.state is from another boot (%s, now %s)",
			 facts->state.boot_id,
			 *facts->kernel.boot_id ? facts->kernel.boot_id :
						  "unknown");
		return false;
	}
	if (strcmp(facts->state.build_id, facts->kernel.build_id) != 0) {
		snprintf(cause, GATE_CAUSE_SIZE,
			 "node.state claims build id %s, the running kernel "
			 "has %s",
			 facts->state.build_id,
			 *facts->kernel.build_id ? facts->kernel.build_id :
						   "none");
		return false;
	}
	return true;
}

static bool judge_plain(const struct gate_facts *facts, char *cause)
{
	char reason[GATE_CAUSE_SIZE];

	if (!gate_claim_is_current(facts)) {
		/* The firmware booted it: it is the distribution's kernel. */
		if (!facts->kernel.booted_by_broker)
			return true;
		gate_claim_holds(facts, reason);
		snprintf(cause, GATE_CAUSE_SIZE,
			 "Kernel Broker booted this kernel and it is not "
			 "proven: %.300s",
			 reason);
		return false;
	}
	if (!gate_claim_holds(facts, cause))
		return false;
	if (!ref_is_stock(&facts->state.kernel)) {
		snprintf(cause, GATE_CAUSE_SIZE,
			 "the node has not gone back to stock");
		return false;
	}
	if (!facts->state.attested && facts->kernel.booted_by_broker) {
		snprintf(cause, GATE_CAUSE_SIZE,
			 "Kernel Broker booted this kernel and has not "
			 "attested it");
		return false;
	}
	return true;
}

static bool judge_profile(const struct gate_facts *facts, char *cause)
{
	const struct nodestate *state = &facts->state;

	if (!gate_claim_holds(facts, cause))
		return false;
	if (strcmp(state->kernel.name, facts->ref->name) != 0) {
		snprintf(cause, GATE_CAUSE_SIZE, "it is another profile");
		return false;
	}
	if (!ref_agree(&state->kernel, facts->ref)) {
		snprintf(cause, GATE_CAUSE_SIZE, "it is another version");
		return false;
	}
	if (!state->attested) {
		snprintf(cause, GATE_CAUSE_SIZE, "the kernel is not attested");
		return false;
	}
	if (!nodestate_has_job(state, facts->job)) {
		snprintf(cause, GATE_CAUSE_SIZE,
			 "the node was prepared for job %.200s, this is "
			 "job %u",
			 *state->jobs ? state->jobs : "(none)",
			 (unsigned int)facts->job);
		return false;
	}
	return true;
}

bool gate_judge(const struct gate_facts *facts, char *cause)
{
	cause[0] = '\0';
	if (gate_claim_is_current(facts) &&
	    nodestate_lost_job(&facts->state, facts->job)) {
		snprintf(cause, GATE_CAUSE_SIZE,
			 "the node was booted while the job was on it and has "
			 "lost the job's kernel");
		return false;
	}
	if (!facts->ref || ref_is_stock(facts->ref))
		return judge_plain(facts, cause);
	return judge_profile(facts, cause);
}

void gate_describe_node(const struct gate_facts *facts, char *text, size_t size)
{
	const char *release = facts->kernel.release;
	char name[REF_TEXT_SIZE];

	if (!*release)
		release = "unknown release";
	if (gate_claim_is_current(facts)) {
		ref_format(&facts->state.kernel, name);
		snprintf(text, size, "%s (%s)", name, release);
	} else {
		snprintf(text, size, "%s", release);
	}
}
