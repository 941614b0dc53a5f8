/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
/*
 * The gate: may this job run on the kernel that this node runs? It is asked
 * on every node before a job begins, and for every job, because a plain job
 * must not land on somebody else's kernel either.
 *
 * gate_judge() is pure. It sees what the job wants, what the agent claims
 * (node.state) and what the running kernel says of itself, and lets a job
 * pass only if nothing contradicts anything:
 *
 *	the claim holds when it is of this boot and of this build id;
 *	a profile job needs a claim that holds, is attested, names its profile
 *	(and version, when it asked for one) and names the job itself;
 *	a plain job needs stock: a claim that holds and says so, or no claim
 *	of this boot at all on a kernel that the broker did not boot;
 *	a job whose kernel the node has lost in the midst of it passes never.
 */
#ifndef KERNEL_PROFILE_GATE_H
#define KERNEL_PROFILE_GATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "node/kernel.h"
#include "node/nodestate.h"
#include "common/settings.h"

#define GATE_CAUSE_SIZE 512

struct gate_facts {
	const struct ref *ref; /* NULL: a plain job */
	uint32_t job;
	int state_error; /* why there is no claim; 0: there is one */
	struct nodestate state;
	struct kernel kernel;
};

/* Fills in the node's side: state_error, state and kernel. */
void gate_read_node(const struct settings *settings, struct gate_facts *facts);

/* There is a claim, and it was made in this boot; it may yet be false. */
bool gate_claim_is_current(const struct gate_facts *facts);

/* True, or cause says why the claim cannot be believed. */
bool gate_claim_holds(const struct gate_facts *facts, char *cause);

/* True lets the job pass; else cause (GATE_CAUSE_SIZE bytes) says why not. */
bool gate_judge(const struct gate_facts *facts, char *cause);

/* What runs, for people: "mitgcm@3 (6.1.192-mitgcm)" or "6.1.0-9-amd64". */
void gate_describe_node(const struct gate_facts *facts, char *text,
			size_t size);

#endif
