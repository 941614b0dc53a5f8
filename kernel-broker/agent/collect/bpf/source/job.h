/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Who belongs to the job: tasks and sockets whose cgroup is the job's or lies
 * below it. The level is the cgroup's depth, so that the test is one look at
 * the list of ancestors and no walk.
 */
#ifndef JOB_H
#define JOB_H

#include "kernel.h"

/* Set before the programs are loaded. */
const volatile __u64 job_cgroup = 0;
const volatile __u32 job_level = 0;

/*
 * The number of the look, which the agent changes while programs run: odd while
 * the job is observed, even in a pause between. State that was left by an
 * earlier look has another number, so a pause needs no clearing up.
 */
volatile __u32 look SEC(".data.look") = 1;

static __always_inline bool looking(void)
{
	return look & 1;
}

static __always_inline bool current_in_job(void)
{
	return bpf_get_current_ancestor_cgroup_id((int)job_level) == job_cgroup;
}

static __always_inline bool cgroup_in_job(struct cgroup *cgroup)
{
	__u64 id = 0;
	void *place;

	if (!cgroup || (__u32)BPF_CORE_READ(cgroup, level) < job_level)
		return false;
	if (bpf_core_field_exists(cgroup->ancestors)) {
		struct cgroup *ancestor = NULL;

		place = (void *)cgroup +
			bpf_core_field_offset(struct cgroup, ancestors) +
			job_level * sizeof(void *);
		if (bpf_probe_read_kernel(&ancestor, sizeof(ancestor), place))
			return false;
		id = BPF_CORE_READ(ancestor, kn, id);
	} else {
		place = (void *)cgroup +
			bpf_core_field_offset(struct cgroup___ids,
					      ancestor_ids) +
			job_level * sizeof(id);
		if (bpf_probe_read_kernel(&id, sizeof(id), place))
			return false;
	}
	return id == job_cgroup;
}

static __always_inline bool task_in_job(struct task_struct *task)
{
	return cgroup_in_job(BPF_CORE_READ(task, cgroups, dfl_cgrp));
}

static __always_inline bool sock_in_job(struct sock *sock)
{
	return cgroup_in_job(BPF_CORE_READ(sock, sk_cgrp_data.cgroup));
}

/* Whether a task that leaves the CPU would rather have stayed. */
static __always_inline bool still_runnable(struct task_struct *task)
{
	struct task_struct___state *old = (void *)task;

	if (bpf_core_field_exists(task->__state))
		return BPF_CORE_READ(task, __state) == 0;
	return BPF_CORE_READ(old, state) == 0;
}

/* The bucket of a logarithmic histogram: the place of the highest bit. */
static __always_inline __u64 log2_bucket(__u64 value, __u64 buckets)
{
	__u64 bucket = 0;

	if (value >> 32) {
		value >>= 32;
		bucket += 32;
	}
	if (value >> 16) {
		value >>= 16;
		bucket += 16;
	}
	if (value >> 8) {
		value >>= 8;
		bucket += 8;
	}
	if (value >> 4) {
		value >>= 4;
		bucket += 4;
	}
	if (value >> 2) {
		value >>= 2;
		bucket += 2;
	}
	bucket += value >> 1;
	/* The verifier follows the register that is compared and no other. */
	asm volatile("" : "+r"(bucket));
	if (bucket >= buckets)
		bucket = buckets - 1;
	asm volatile("" : "+r"(bucket));
	return bucket;
}

#endif
