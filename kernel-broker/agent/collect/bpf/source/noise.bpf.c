/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Finds what takes CPU time away from a job: interrupts while it runs, soft
 * interrupts, NMIs, and threads that run in its place.
 *
 * Noise nests: an interrupt comes in the middle of a soft interrupt. Each CPU
 * has the sum of all noise so far; an event that ends takes off by how much the
 * sum grew meanwhile, so that each nanosecond counts for the innermost only.
 */
#include "job.h"
#include "noise.h"

enum { NAME_BYTES = 16 };

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MOST_CPUS); /* set to the CPUs there are */
	__type(key, __u32);
	__type(value, struct noise_cpu);
} cpus SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MOST_SOURCES);
	__type(key, struct source_key);
	__type(value, struct source_sum);
} sources SEC(".maps");

/* Where a task of the job was when another thread took its place. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, __u32);
} victims SEC(".maps");

static __always_inline struct noise_cpu *cpu_at(__u32 number)
{
	return bpf_map_lookup_elem(&cpus, &number);
}

/* Nothing in a pause: the agent ends what was under way. */
static __always_inline struct noise_cpu *this_cpu(void)
{
	return looking() ? cpu_at(bpf_get_smp_processor_id()) : NULL;
}

static __always_inline void record(struct noise_cpu *cpu,
				   struct source_key *key, __u64 ns, __u64 now)
{
	struct source_sum empty = {}, *sum;

	key->cpu = bpf_get_smp_processor_id();
	sum = bpf_map_lookup_elem(&sources, key);
	if (!sum) {
		bpf_map_update_elem(&sources, key, &empty, BPF_NOEXIST);
		sum = bpf_map_lookup_elem(&sources, key);
	}
	cpu->lost_ns += ns;
	if (!sum) {
		cpu->dropped++;
		return;
	}
	sum->count++;
	sum->ns += ns;
	sum->times[log2_bucket(ns, NOISE_TIMES)]++;
	if (ns > sum->most) {
		sum->most = ns;
		sum->most_at = now;
	}
}

/* How long it took, less the noise that came in between. */
static __always_inline __u64 own(struct noise_cpu *cpu, __u64 began, __u64 lost,
				 __u64 now)
{
	__u64 took = now - began, inner = cpu->lost_ns - lost;

	return took > inner ? took - inner : 0;
}

static __always_inline void thief_ends(struct noise_cpu *cpu, __u64 now)
{
	struct source_key key = { .kind = SOURCE_THREAD };

	__builtin_memcpy(key.name, cpu->thief, NAME_BYTES);
	record(cpu, &key, own(cpu, cpu->thief_began, cpu->thief_lost, now),
	       now);
}

static __always_inline void thief_begins(struct noise_cpu *cpu, __u64 now,
					 struct task_struct *thief)
{
	cpu->occupant = THIEF;
	cpu->thief_began = now;
	cpu->thief_lost = cpu->lost_ns;
	BPF_CORE_READ_INTO(&cpu->thief, thief, comm);
}

/* A task that was moved elsewhere waits here no longer. */
static __always_inline void release(struct task_struct *task, __u32 here)
{
	__u32 *place = bpf_task_storage_get(&victims, task, NULL, 0);
	struct noise_cpu *there;
	__u32 number;

	if (!place || !*place)
		return;
	number = *place - 1;
	*place = 0;
	there = cpu_at(number);
	if (there && number != here &&
	    there->victim == (__u32)BPF_CORE_READ(task, pid))
		there->victim = 0;
}

static __always_inline void victim_waits(struct noise_cpu *cpu,
					 struct task_struct *task, __u32 here)
{
	__u32 place = here + 1, *stored;

	cpu->victim = (__u32)BPF_CORE_READ(task, pid);
	stored = bpf_task_storage_get(&victims, task, &place,
				      BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (stored)
		*stored = place;
}

static __always_inline void account(struct noise_cpu *cpu, __u64 now)
{
	if (cpu->occupant == JOB)
		cpu->job_ns += now - cpu->mark;
	else if (cpu->occupant == THIEF)
		cpu->thief_ns += now - cpu->mark;
	cpu->mark = now;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(task_changes, bool preempt, struct task_struct *prev,
	     struct task_struct *next)
{
	__u32 here = bpf_get_smp_processor_id();
	struct noise_cpu *cpu = this_cpu();
	__u32 before;
	__u64 now;

	if (!cpu)
		return 0;
	if (cpu->occupant == NOBODY && !task_in_job(next))
		return 0;
	now = bpf_ktime_get_ns();
	before = cpu->occupant;
	account(cpu, now);
	cpu->irq_began = 0;
	cpu->soft_began = 0;
	if (before == THIEF)
		thief_ends(cpu, now);
	if (task_in_job(next)) {
		release(next, here);
		cpu->occupant = JOB;
		cpu->victim = 0;
		return 0;
	}
	if (before == JOB) {
		cpu->victim = 0;
		/* It may have run here without a switch that was seen. */
		if (task_in_job(prev) && (preempt || still_runnable(prev)))
			victim_waits(cpu, prev, here);
	}
	/* An idle CPU has nobody that waits for it. */
	if (cpu->victim && BPF_CORE_READ(next, pid))
		thief_begins(cpu, now, next);
	else
		cpu->occupant = NOBODY;
	return 0;
}

/* A task that runs already when the programs are attached. */
static __always_inline bool wanted(struct noise_cpu *cpu)
{
	if (cpu->occupant == NOBODY && current_in_job()) {
		cpu->mark = bpf_ktime_get_ns();
		cpu->occupant = JOB;
	}
	return cpu->occupant != NOBODY;
}

static __always_inline struct noise_cpu *irq_begins(void)
{
	struct noise_cpu *cpu = this_cpu();

	if (!cpu || !wanted(cpu))
		return NULL;
	cpu->irq_began = bpf_ktime_get_ns();
	cpu->irq_lost = cpu->lost_ns;
	return cpu;
}

static __always_inline int irq_ends(void)
{
	struct source_key key = { .kind = SOURCE_IRQ };
	struct noise_cpu *cpu = this_cpu();
	__u64 now;

	if (!cpu || !cpu->irq_began)
		return 0;
	now = bpf_ktime_get_ns();
	__builtin_memcpy(key.name, cpu->irq, NAME_BYTES);
	record(cpu, &key, own(cpu, cpu->irq_began, cpu->irq_lost, now), now);
	cpu->irq_began = 0;
	return 0;
}

SEC("tp_btf/irq_handler_entry")
int BPF_PROG(irq_handler_begins, int number, struct irqaction *action)
{
	struct noise_cpu *cpu = irq_begins();

	if (cpu)
		bpf_probe_read_kernel_str(cpu->irq, NAME_BYTES,
					  BPF_CORE_READ(action, name));
	return 0;
}

SEC("tp_btf/irq_handler_exit")
int BPF_PROG(irq_handler_ends)
{
	return irq_ends();
}

#define INTERRUPT(name)                                                \
	SEC("tp_btf/" #name "_entry")                                  \
	int BPF_PROG(name##_begins)                                    \
	{                                                              \
		static const char label[NAME_BYTES] = #name;           \
		struct noise_cpu *cpu = irq_begins();                  \
                                                                       \
		if (cpu)                                               \
			__builtin_memcpy(cpu->irq, label, NAME_BYTES); \
		return 0;                                              \
	}                                                              \
	SEC("tp_btf/" #name "_exit")                                   \
	int BPF_PROG(name##_ends)                                      \
	{                                                              \
		return irq_ends();                                     \
	}

INTERRUPT(local_timer)
INTERRUPT(reschedule)
INTERRUPT(call_function)
INTERRUPT(irq_work)

SEC("tp_btf/call_function_single_entry")
int BPF_PROG(call_single_begins)
{
	static const char label[NAME_BYTES] = "call_function_1";
	struct noise_cpu *cpu = irq_begins();

	if (cpu)
		__builtin_memcpy(cpu->irq, label, NAME_BYTES);
	return 0;
}

SEC("tp_btf/call_function_single_exit")
int BPF_PROG(call_single_ends)
{
	return irq_ends();
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(softirq_begins, unsigned int number)
{
	struct noise_cpu *cpu = this_cpu();

	if (!cpu || !wanted(cpu))
		return 0;
	cpu->soft_began = bpf_ktime_get_ns();
	cpu->soft_lost = cpu->lost_ns;
	return 0;
}

/* Vectors have numbers, which the collector puts names to. */
SEC("tp_btf/softirq_exit")
int BPF_PROG(softirq_ends, unsigned int number)
{
	struct source_key key = { .kind = SOURCE_SOFTIRQ };
	struct noise_cpu *cpu = this_cpu();
	__u64 now;

	if (!cpu || !cpu->soft_began)
		return 0;
	now = bpf_ktime_get_ns();
	key.name[0] = (char)('a' + (number & 15));
	record(cpu, &key, own(cpu, cpu->soft_began, cpu->soft_lost, now), now);
	cpu->soft_began = 0;
	return 0;
}

SEC("tp_btf/nmi_handler")
int BPF_PROG(nmi_ends, void *handler, long long ns)
{
	struct source_key key = { .kind = SOURCE_NMI, .name = "nmi" };
	struct noise_cpu *cpu = this_cpu();

	if (cpu && cpu->occupant != NOBODY && ns > 0)
		record(cpu, &key, (__u64)ns, bpf_ktime_get_ns());
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
