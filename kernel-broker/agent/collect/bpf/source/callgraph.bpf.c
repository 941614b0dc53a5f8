/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Counts where in the kernel a job's tasks are, each time a CPU's clock ticks.
 * A stack is stored once and counted by its number.
 */
#include "job.h"

enum { DEEPEST = 127, MOST_STACKS = 16384, EFAULT = 14 };

enum slot { SLOT_KERNEL, SLOT_USER, SLOT_LOST, SLOTS };

struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(max_entries, MOST_STACKS);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, DEEPEST * sizeof(__u64));
} stacks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, MOST_STACKS);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SLOTS);
	__type(key, __u32);
	__type(value, __u64);
} samples SEC(".maps");

static __always_inline void bump(__u32 slot)
{
	__u64 *count = bpf_map_lookup_elem(&samples, &slot);

	if (count)
		(*count)++;
}

SEC("perf_event")
int clock_ticks(void *context)
{
	__u64 one = 1, *count;
	long stack;
	__u32 key;

	if (!current_in_job())
		return 0;
	stack = bpf_get_stackid(context, &stacks, 0);
	if (stack == -EFAULT) {
		bump(SLOT_USER);
		return 0;
	}
	if (stack < 0) {
		bump(SLOT_LOST);
		return 0;
	}
	bump(SLOT_KERNEL);
	key = (__u32)stack;
	count = bpf_map_lookup_elem(&counts, &key);
	if (count)
		(*count)++;
	else
		bpf_map_update_elem(&counts, &key, &one, BPF_ANY);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
