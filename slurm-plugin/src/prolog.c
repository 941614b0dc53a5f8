#include "prolog.h"

#include <stdio.h>
#include <stdlib.h>

#include "gate.h"
#include "names.h"
#include "option.h"

#define NODE_TEXT_SIZE 256

static int refuse(const struct gate_facts *facts, const char *wanted,
		  const char *cause)
{
	char node[NODE_TEXT_SIZE];

	gate_describe_node(facts, node, sizeof(node));
	slurm_error("kernel-broker: gate: job %u refused: wanted %s, node "
		    "runs %s, because %s",
		    (unsigned int)facts->job, wanted, node, cause);
	return -1;
}

/*
 * What the job asked for. Both ways to say it are the client's, so what they
 * say needs the same distrust, and two different answers are one lie.
 */
static bool read_wish(spank_t sp, struct wish *wish, bool *given,
		      char cause[GATE_CAUSE_SIZE])
{
	const char *control = getenv(PROLOG_CONTROL_ENV);
	char *option = NULL;
	struct wish second;

	*given = false;
	if (control) {
		if (wish_parse(control, wish) != WISH_OK) {
			snprintf(cause, GATE_CAUSE_SIZE,
				 PROLOG_CONTROL_ENV " is no profile's name");
			return false;
		}
		*given = true;
	}
	if (spank_option_getopt(sp, &kernel_profile_option, &option) !=
		    ESPANK_SUCCESS ||
	    !option)
		return true;
	if (wish_parse(option, &second) != WISH_OK) {
		snprintf(cause, GATE_CAUSE_SIZE,
			 "the option's value is no profile's name");
		return false;
	}
	if (!*given)
		*wish = (struct wish){ .name = WISH_STOCK };
	if (!wish_equal(wish, &second)) {
		snprintf(cause, GATE_CAUSE_SIZE,
			 "the job asks for two profiles, by " CONTROL_ENV
			 " and by --" OPTION_NAME);
		return false;
	}
	*given = true;
	return true;
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
		return refuse(&facts, "an unknown kernel",
			      "Slurm does not tell the job's id");
	if (!read_wish(sp, &wish, &given, cause))
		return refuse(&facts, "an unclear kernel", cause);
	wish_format(&wish, wanted);
	if (given)
		facts.wish = &wish;
	if (!gate_judge(&facts, cause))
		return refuse(&facts, wanted, cause);
	gate_describe_node(&facts, node, sizeof(node));
	slurm_debug("kernel-broker: gate: job %u passes: wanted %s, node runs "
		    "%s",
		    (unsigned int)facts.job, wanted, node);
	return 0;
}
