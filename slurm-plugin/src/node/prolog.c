/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
#include "node/prolog.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "node/gate.h"
#include "common/names.h"
#include "node/refusals.h"

#define NODE_TEXT_SIZE 256

/*
 * Slurm drains the node for this, and says of no prolog which one it was. The
 * refusal is noted for the broker; a job is refused also where that fails.
 */
static int refuse(const struct settings *settings,
		  const struct gate_facts *facts, const char *wanted,
		  const char *cause)
{
	char node[NODE_TEXT_SIZE];
	char text[REF_TEXT_SIZE + NODE_TEXT_SIZE + GATE_CAUSE_SIZE + 64];
	struct refusal refusal = { .boot_id = facts->kernel.boot_id,
				   .time = time(NULL),
				   .job = facts->job,
				   .cause = text };
	int rc;

	gate_describe_node(facts, node, sizeof(node));
	snprintf(text, sizeof(text), "wanted %s, node runs %s, because %s",
		 wanted, node, cause);
	slurm_error("kernel-broker: gate: job %u refused: %s",
		    (unsigned int)facts->job, text);
	rc = refusals_add(settings->node_state, &refusal);
	if (rc)
		slurm_error("kernel-broker: gate: the refusal cannot be noted "
			    "beside %s: %s",
			    settings->node_state, strerror(rc));
	return -1;
}

/*
 * What the job asked for is in the control variable, for the broker's hook as
 * for the gate. Slurm's own variable for the option is nobody's word: the
 * plugin takes it away at submit, and job_submit.lua lets no other value pass.
 */
static bool read_ref(struct ref *ref, bool *given, char cause[GATE_CAUSE_SIZE])
{
	const char *control = getenv(PROLOG_CONTROL_ENV);

	*given = control && *control;
	if (!*given || ref_parse(control, ref) == REF_OK)
		return true;
	snprintf(cause, GATE_CAUSE_SIZE,
		 PROLOG_CONTROL_ENV " is no profile's name");
	return false;
}

int prolog_gate(spank_t sp, const struct settings *settings)
{
	struct gate_facts facts = { .ref = NULL };
	struct ref ref = { .name = REF_STOCK };
	char cause[GATE_CAUSE_SIZE];
	char wanted[REF_TEXT_SIZE];
	char node[NODE_TEXT_SIZE];
	bool given;

	gate_read_node(settings, &facts);
	if (spank_get_item(sp, S_JOB_ID, &facts.job) != ESPANK_SUCCESS)
		return refuse(settings, &facts, "an unknown kernel",
			      "Slurm does not tell the job's id");
	if (!read_ref(&ref, &given, cause))
		return refuse(settings, &facts, "an unclear kernel", cause);
	ref_format(&ref, wanted);
	if (given)
		facts.ref = &ref;
	if (!gate_judge(&facts, cause))
		return refuse(settings, &facts, wanted, cause);
	gate_describe_node(&facts, node, sizeof(node));
	slurm_debug("kernel-broker: gate: job %u passes: wanted %s, node runs "
		    "%s",
		    (unsigned int)facts.job, wanted, node);
	return 0;
}
