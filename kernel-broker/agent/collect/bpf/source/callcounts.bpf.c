/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Counts the calls between the kernel's functions that a job causes, by where a
 * call came from and where it went. What this program itself has the kernel call
 * is not seen: the kernel keeps probes out of probes.
 */
#include "job.h"

enum { MOST_EDGES = 32768, EEXIST = 17 };

struct edge {
	__u64 from; /* the address behind the call */
	__u64 to;   /* the function's own */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, MOST_EDGES);
	__type(key, struct edge);
	__type(value, __u64);
} edges SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} lost SEC(".maps");

static __always_inline bool more(const struct edge *edge)
{
	__u64 *count = bpf_map_lookup_elem(&edges, edge);

	if (count)
		(*count)++;
	return count;
}

static __always_inline void lose(void)
{
	__u32 zero = 0;
	__u64 *count = bpf_map_lookup_elem(&lost, &zero);

	if (count)
		(*count)++;
}

SEC("kprobe.multi")
int function_called(struct pt_regs *regs)
{
	struct edge edge = {};
	__u64 one = 1;
	long failed;

	if (!current_in_job())
		return 0;
	edge.to = bpf_get_func_ip(regs);
	/* At a function's first instruction, what it returns to is on top. */
	if (bpf_probe_read_kernel(&edge.from, sizeof(edge.from),
				  (void *)regs->sp)) {
		lose();
		return 0;
	}
	if (more(&edge))
		return 0;
	failed = bpf_map_update_elem(&edges, &edge, &one, BPF_NOEXIST);
	/* Another CPU was first: then this one has a place, too. */
	if (failed && (failed != -EEXIST || !more(&edge)))
		lose();
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
