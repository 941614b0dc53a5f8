/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
#include <string.h>

#include "fuzz.h"
#include "node/gate.h"

/* A claim that is believed has all that the gate needs. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct gate_facts facts = { .job = 7 };
	char cause[GATE_CAUSE_SIZE], text[128];

	facts.state_error =
		nodestate_parse((const char *)data, size, &facts.state);
	if (!facts.state_error) {
		REQUIRE(strlen(facts.state.boot_id) == BOOT_ID_LENGTH);
		REQUIRE(*facts.state.build_id && *facts.state.release);
		REQUIRE(*facts.state.kernel.name);
		REQUIRE(facts.state.kernel.version > 0);
		strcpy(facts.kernel.boot_id, facts.state.boot_id);
		strcpy(facts.kernel.build_id, facts.state.build_id);
		facts.ref = &facts.state.kernel;
	}
	if (!gate_judge(&facts, cause))
		REQUIRE(*cause);
	else
		REQUIRE(facts.state_error ||
			!nodestate_lost_job(&facts.state, facts.job));
	gate_describe_node(&facts, text, sizeof(text));
	return 0;
}
