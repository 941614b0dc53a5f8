/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
#include "prolog.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "gate.h"
#include "names.h"
#include "refusals.h"

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
	char text[WISH_TEXT_SIZE + NODE_TEXT_SIZE + GATE_CAUSE_SIZE + 64];
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
static bool read_wish(struct wish *wish, bool *given,
		      char cause[GATE_CAUSE_SIZE])
{
	const char *control = getenv(PROLOG_CONTROL_ENV);

	*given = control && *control;
	if (!*given || wish_parse(control, wish) == WISH_OK)
		return true;
	snprintf(cause, GATE_CAUSE_SIZE,
		 PROLOG_CONTROL_ENV " is no profile's name");
	return false;
}

int prolog_gate(spank_t sp, const struct settings *settings)
{
	struct gate_facts facts = { .wish = NULL };
	struct wish wish = { .name = WISH_STOCK };
	char cause[GATE_CAUSE_SIZE];
	char wanted[WISH_TEXT_SIZE];
	char node[NODE_TEXT_SIZE];
	bool given;

	gate_read_node(settings, &facts);
	if (spank_get_item(sp, S_JOB_ID, &facts.job) != ESPANK_SUCCESS)
		return refuse(settings, &facts, "an unknown kernel",
			      "Slurm does not tell the job's id");
	if (!read_wish(&wish, &given, cause))
		return refuse(settings, &facts, "an unclear kernel", cause);
	wish_format(&wish, wanted);
	if (given)
		facts.wish = &wish;
	if (!gate_judge(&facts, cause))
		return refuse(settings, &facts, wanted, cause);
	gate_describe_node(&facts, node, sizeof(node));
	slurm_debug("kernel-broker: gate: job %u passes: wanted %s, node runs "
		    "%s",
		    (unsigned int)facts.job, wanted, node);
	return 0;
}
