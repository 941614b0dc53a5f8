/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The state of calls in progress: of the one that a CPU has, and of those whose
 * tasks are away. What an event charges, and to what, is here; which events
 * there are is in syscalls.bpf.c.
 */
#ifndef CALLSTATE_H
#define CALLSTATE_H

#include "job.h"
#include "syscalls.h"

enum { SOFTIRQ_NET_TX = 2, SOFTIRQ_NET_RX = 3 };

enum packet { PACKET_NONE, PACKET_OTHER, PACKET_JOB };

struct call {
	__u64 began;
	__u64 mark; /* everything before it is charged */
	__u32 number;
	__u32 touched; /* parts besides the call's own that are not zero */
	__u32 faults;  /* depth */
	__u32 trap;    /* a page fault from outside of any call */
	__u64 ns[PARTS_ROUND];
	__u32 count[PARTS_ROUND];
};

/* Calls of one process, not in the table of processes yet. */
struct recent {
	struct process_key key;
	__u64 count; /* 0: nothing */
	__u64 ns;
};

struct cpu {
	__u64 events; /* that cost the job time */
	struct recent recent[RECENT];
	__u32 active; /* the look in which current's call of the job began */
	__u32 hard;   /* depth of interrupts */
	__u32 soft;   /* soft interrupt's number and one, or 0 */
	__u32 packet;
	__u32 taken;    /* a program is at work on the call */
	__u64 other_ns; /* of packets for others, before this packet */
	struct call call;
};

/* A call whose task is off the CPU. */
struct away {
	struct call call;
	__u64 since;
	__u64 woken;
	__u32 valid; /* the look that it belongs to */
	__u32 why;   /* PART_PREEMPTED_*, or PART_WAIT_UNKNOWN */
	__u32 cause; /* PART_WAIT_* */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cpu);
} cpus SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct away);
} tasks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, NUMBERS);
	__type(key, __u32);
	__type(value, struct call_stats);
} calls SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, struct process_key);
	__type(value, struct process_calls);
} processes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, struct process_name);
} names SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lost);
} losses SEC(".maps");

static __always_inline struct cpu *this_cpu(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&cpus, &zero);
}

static __always_inline void add(struct call *call, __u32 part, __u64 ns)
{
	part &= PARTS_ROUND - 1;
	call->ns[part] += ns;
	call->touched |= 1U << part;
}

static __always_inline void count(struct call *call, __u32 part)
{
	part &= PARTS_ROUND - 1;
	call->count[part]++;
	call->touched |= 1U << part;
}

static __always_inline bool in_packets(const struct cpu *cpu)
{
	return cpu->soft == SOFTIRQ_NET_RX + 1;
}

/* What the CPU is doing for, or to, the call. */
static __always_inline __u32 doing(const struct cpu *cpu)
{
	if (cpu->hard)
		return PART_IRQ;
	if (in_packets(cpu) && cpu->packet == PACKET_JOB)
		return PART_PACKET_JOB;
	if (in_packets(cpu) && cpu->packet == PACKET_OTHER)
		return PART_PACKET_OTHER;
	if (cpu->soft)
		return PART_SOFTIRQ;
	if (cpu->call.faults)
		return PART_FAULT;
	return PART_CALL;
}

static __always_inline void charge(struct cpu *cpu, __u64 now)
{
	struct call *call = &cpu->call;

	/* An interrupt may have charged up to a later instant. */
	if (now > call->mark) {
		add(call, doing(cpu), now - call->mark);
		call->mark = now;
	}
}

/*
 * An interrupt may come in the middle of a program. The one that came first has
 * the call; the other charges nothing, and its time goes to what the first one
 * charges next. Only so does each nanosecond count once.
 */
static __always_inline bool take(struct cpu *cpu)
{
	if (cpu->taken)
		return false;
	cpu->taken = 1;
	cpu->events++;
	barrier();
	return true;
}

static __always_inline void release(struct cpu *cpu)
{
	barrier();
	cpu->taken = 0;
}

/* Current is in a call, and it began in this look. */
static __always_inline bool active(const struct cpu *cpu)
{
	return cpu->active == look;
}

static __always_inline void charge_now(struct cpu *cpu)
{
	if (active(cpu))
		charge(cpu, bpf_ktime_get_ns());
}

static __always_inline void begin(struct cpu *cpu, __u32 number, __u32 trap)
{
	struct call *call = &cpu->call;
	__u64 now = bpf_ktime_get_ns();

	/* Neither can be under way here; heals a lost event. */
	cpu->hard = 0;
	cpu->soft = 0;
	/* A call that a pause cut off has left its parts. */
	if (call->touched)
		__builtin_memset(call, 0, sizeof(*call));
	call->began = now;
	call->mark = now;
	call->number = number;
	call->faults = 0;
	call->trap = trap;
	cpu->active = look;
}

#endif
