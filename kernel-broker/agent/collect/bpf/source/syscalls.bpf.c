/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Times the system calls of one job and says what each nanosecond went to.
 *
 * The state of a call in progress belongs to the CPU that runs it, so that a
 * call costs no look into a table of tasks, and interrupts find it without a
 * lock. When its task leaves the CPU in the middle of the call, the state goes
 * into the task's storage, and comes back with the task.
 *
 * At each event the time since the last one is charged to what the CPU did
 * until now. A page fault outside of any call is timed as if it were one.
 */
#include "slowest.h"

enum {
	NR_EXIT = 60,
	NR_EXIT_GROUP = 231,
	X32_BIT = 0x40000000,
	CS_32BIT = 0x23,
	FAULT_RETRY = 0x400,
	MAX_ERRNO = 4095
};

static __always_inline struct lost *loss(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&losses, &zero);
}

static __always_inline void name_process(__u32 tgid)
{
	struct process_name name = {};

	bpf_get_current_comm(name.comm, sizeof(name.comm));
	bpf_map_update_elem(&names, &tgid, &name, BPF_ANY);
}

/* Into the table that all CPUs share. */
static __always_inline void into_table(const struct recent *recent)
{
	struct process_key key = recent->key;
	struct process_calls fresh = { .count = recent->count,
				       .ns = recent->ns };
	struct process_calls *sum;
	struct lost *lost;

	sum = bpf_map_lookup_elem(&processes, &key);
	if (!sum) {
		if (!bpf_map_update_elem(&processes, &key, &fresh, BPF_NOEXIST))
			return;
		/* Another thread was first, or the table is full. */
		sum = bpf_map_lookup_elem(&processes, &key);
	}
	if (sum) {
		__sync_fetch_and_add(&sum->count, fresh.count);
		__sync_fetch_and_add(&sum->ns, fresh.ns);
		return;
	}
	lost = loss();
	if (lost) {
		lost->calls += fresh.count;
		lost->ns += fresh.ns;
	}
}

/*
 * A process mostly calls what it called before, so its CPU adds that up and
 * looks for it in the table when another call wants the place. What is left
 * here at the end the collector adds to what the table has.
 */
static __always_inline void of_process(struct cpu *cpu, __u32 number, __u64 ns)
{
	struct recent *recent = &cpu->recent[number & (RECENT - 1)];
	__u32 tgid = (__u32)(bpf_get_current_pid_tgid() >> 32);

	if (recent->key.tgid != tgid || recent->key.number != number ||
	    !recent->count) {
		if (recent->count)
			into_table(recent);
		recent->key.tgid = tgid;
		recent->key.number = number;
		recent->count = 0;
		recent->ns = 0;
		if (!bpf_map_lookup_elem(&names, &tgid))
			name_process(tgid);
	}
	recent->count++;
	recent->ns += ns;
}

/* Adds the parts to the sums and leaves the call's at zero for the next. */
static __always_inline void settle(struct call_stats *stats, struct call *call)
{
	if (call->touched == 1U << PART_CALL) {
		stats->part_ns[PART_CALL] += call->ns[PART_CALL];
		call->ns[PART_CALL] = 0;
		return;
	}
#pragma clang loop unroll(full)
	for (__u32 part = 0; part < PARTS; part++) {
		if (!(call->touched & (1U << part)))
			continue;
		stats->part_ns[part] += call->ns[part];
		stats->part_count[part] += call->count[part];
		call->ns[part] = 0;
		call->count[part] = 0;
	}
}

static __always_inline void finish(struct cpu *cpu, struct pt_regs *regs,
				   long result)
{
	struct call *call = &cpu->call;
	struct call_stats *stats;
	__u32 number = call->number;
	__u64 ns;

	charge(cpu, bpf_ktime_get_ns());
	cpu->active = 0;
	ns = call->mark - call->began;
	stats = bpf_map_lookup_elem(&calls, &number);
	if (!stats)
		return;
	stats->count++;
	stats->failed += result < 0 && result >= -MAX_ERRNO;
	stats->ns += ns;
	stats->times[log2_bucket(ns, TIMES)]++;
	of_process(cpu, number, ns);
	if (ns > stats->floor)
		note_slow(cpu, stats, regs, result, ns);
	settle(stats, call);
	call->touched = 0;
}

/* A call that does not return. */
static __always_inline void last_call(struct cpu *cpu, __u32 number)
{
	struct call_stats *stats = bpf_map_lookup_elem(&calls, &number);

	if (!stats)
		return;
	stats->count++;
	stats->times[0]++;
	of_process(cpu, number, 0);
}

static __always_inline __u32 number_of(struct pt_regs *regs, long id)
{
	if (id < 0 || id >= NUMBER_FAULT || (id & X32_BIT) ||
	    regs->cs == CS_32BIT)
		return NUMBER_FOREIGN;
	return (__u32)id;
}

SEC("tp_btf/sys_enter")
int BPF_PROG(call_begins, struct pt_regs *regs, long id)
{
	struct cpu *cpu;
	__u32 number;

	if (!current_in_job())
		return 0;
	cpu = this_cpu();
	if (!cpu)
		return 0;
	number = number_of(regs, id);
	/* Nothing can have it here; heals a lost end. */
	cpu->taken = 0;
	take(cpu);
	if (!looking())
		cpu->active = 0;
	else if (number == NR_EXIT || number == NR_EXIT_GROUP)
		last_call(cpu, number);
	else
		begin(cpu, number, 0);
	release(cpu);
	return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(call_ends, struct pt_regs *regs, long result)
{
	struct cpu *cpu = this_cpu();

	if (!cpu || !active(cpu) || cpu->call.trap || !take(cpu))
		return 0;
	finish(cpu, regs, result);
	release(cpu);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(program_changes, struct task_struct *task)
{
	if (current_in_job())
		name_process((__u32)(bpf_get_current_pid_tgid() >> 32));
	return 0;
}

static __always_inline void leave(struct cpu *cpu, __u64 now, bool preempt,
				  struct task_struct *prev,
				  struct task_struct *next)
{
	struct away *away;
	struct lost *lost;

	charge(cpu, now);
	cpu->active = 0;
	away = bpf_task_storage_get(&tasks, prev, NULL,
				    BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (away) {
		away->call = cpu->call;
		away->since = now;
		away->woken = 0;
		away->cause = PART_WAIT_UNKNOWN;
		away->why = PART_WAIT_UNKNOWN;
		if (preempt || still_runnable(prev))
			away->why = task_in_job(next) ? PART_PREEMPTED_JOB :
							PART_PREEMPTED_OTHER;
		away->valid = look;
	} else {
		lost = loss();
		if (lost)
			lost->away++;
	}
	__builtin_memset(&cpu->call, 0, sizeof(cpu->call));
}

static __always_inline void come_back(struct cpu *cpu, __u64 now,
				      struct away *away,
				      struct task_struct *prev)
{
	struct call *call = &cpu->call;
	__u32 ready;

	cpu->call = away->call;
	away->valid = 0;
	call->mark = now;
	cpu->active = look;
	if (away->why != PART_WAIT_UNKNOWN) {
		add(call, away->why, now - away->since);
		count(call, away->why);
		return;
	}
	if (call->faults)
		away->cause = PART_FAULT_WAIT;
	if (!away->woken || away->woken < away->since || away->woken > now)
		away->woken = now;
	add(call, away->cause, away->woken - away->since);
	count(call, away->cause);
	if (BPF_CORE_READ(prev, pid) == 0)
		ready = PART_READY_IDLE;
	else
		ready = task_in_job(prev) ? PART_READY_JOB : PART_READY_OTHER;
	add(call, ready, now - away->woken);
	count(call, ready);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(task_changes, bool preempt, struct task_struct *prev,
	     struct task_struct *next)
{
	struct cpu *cpu = this_cpu();
	struct away *away;
	__u64 now = 0;

	if (!cpu)
		return 0;
	/* No interrupt switches tasks: heals a lost event. */
	cpu->hard = 0;
	cpu->soft = 0;
	cpu->taken = 0;
	if (active(cpu)) {
		cpu->events++;
		now = bpf_ktime_get_ns();
		leave(cpu, now, preempt, prev, next);
	}
	away = bpf_task_storage_get(&tasks, next, NULL, 0);
	if (away && away->valid == look) {
		cpu->events++;
		if (!now)
			now = bpf_ktime_get_ns();
		come_back(cpu, now, away, prev);
	}
	return 0;
}

/* Runs where the waker runs. */
SEC("tp_btf/sched_waking")
int BPF_PROG(task_wakes, struct task_struct *task)
{
	struct away *away = bpf_task_storage_get(&tasks, task, NULL, 0);
	struct cpu *cpu = this_cpu();

	if (!cpu || !away || away->valid != look || away->woken)
		return 0;
	if (away->why != PART_WAIT_UNKNOWN)
		return 0;
	away->woken = bpf_ktime_get_ns();
	if (cpu->hard)
		away->cause = PART_WAIT_DEVICE;
	else if (cpu->soft == SOFTIRQ_NET_RX + 1 ||
		 cpu->soft == SOFTIRQ_NET_TX + 1)
		away->cause = PART_WAIT_PACKET;
	else if (cpu->soft)
		away->cause = PART_WAIT_DEVICE;
	else
		away->cause =
			current_in_job() ? PART_WAIT_JOB : PART_WAIT_OTHER;
	return 0;
}

static __always_inline int irq_begins(void)
{
	struct cpu *cpu = this_cpu();

	if (!cpu)
		return 0;
	if (active(cpu) && take(cpu)) {
		charge_now(cpu);
		count(&cpu->call, PART_IRQ);
		release(cpu);
	}
	cpu->hard++;
	return 0;
}

static __always_inline int irq_ends(void)
{
	struct cpu *cpu = this_cpu();

	if (!cpu || !cpu->hard)
		return 0;
	if (active(cpu) && take(cpu)) {
		charge_now(cpu);
		release(cpu);
	}
	cpu->hard--;
	return 0;
}

#define INTERRUPT(name)               \
	SEC("tp_btf/" #name "_entry") \
	int BPF_PROG(name##_begins)   \
	{                             \
		return irq_begins();  \
	}                             \
	SEC("tp_btf/" #name "_exit")  \
	int BPF_PROG(name##_ends)     \
	{                             \
		return irq_ends();    \
	}

INTERRUPT(irq_handler)
INTERRUPT(local_timer)
INTERRUPT(reschedule)
INTERRUPT(call_function)
INTERRUPT(call_function_single)
INTERRUPT(irq_work)

static __always_inline void packet_ends(struct cpu *cpu)
{
	if (cpu->packet == PACKET_JOB)
		count(&cpu->call, PART_PACKET_JOB);
	else if (cpu->packet == PACKET_OTHER)
		count(&cpu->call, PART_PACKET_OTHER);
	cpu->packet = PACKET_NONE;
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(softirq_begins, unsigned int number)
{
	struct cpu *cpu = this_cpu();
	bool charged;

	if (!cpu)
		return 0;
	charged = active(cpu) && take(cpu);
	if (charged) {
		charge_now(cpu);
		if (number != SOFTIRQ_NET_RX)
			count(&cpu->call, PART_SOFTIRQ);
	}
	cpu->soft = number + 1;
	cpu->packet = PACKET_NONE;
	if (charged)
		release(cpu);
	return 0;
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(softirq_ends, unsigned int number)
{
	struct cpu *cpu = this_cpu();
	bool charged;

	if (!cpu || !cpu->soft)
		return 0;
	charged = active(cpu) && take(cpu);
	if (charged) {
		charge_now(cpu);
		packet_ends(cpu);
	}
	cpu->soft = 0;
	if (charged)
		release(cpu);
	return 0;
}

SEC("tp_btf/netif_receive_skb")
int BPF_PROG(packet_begins, struct sk_buff *skb)
{
	struct cpu *cpu = this_cpu();

	if (!cpu || !active(cpu) || !in_packets(cpu) || !take(cpu))
		return 0;
	charge_now(cpu);
	packet_ends(cpu);
	cpu->packet = PACKET_OTHER;
	cpu->other_ns = cpu->call.ns[PART_PACKET_OTHER];
	release(cpu);
	return 0;
}

/* The packet has found its socket. */
static __always_inline int packet_is_for(struct sock *sock)
{
	struct cpu *cpu = this_cpu();
	__u64 *other;

	if (!cpu || !active(cpu) || !in_packets(cpu) ||
	    cpu->packet != PACKET_OTHER || !sock_in_job(sock) || !take(cpu))
		return 0;
	cpu->packet = PACKET_JOB;
	/* What an interrupt charged in the middle of it was the job's too. */
	other = &cpu->call.ns[PART_PACKET_OTHER];
	if (*other > cpu->other_ns) {
		add(&cpu->call, PART_PACKET_JOB, *other - cpu->other_ns);
		*other = cpu->other_ns;
	}
	release(cpu);
	return 0;
}

SEC("fentry/sock_def_readable")
int BPF_PROG(packet_readable, struct sock *sock)
{
	return packet_is_for(sock);
}

SEC("tp_btf/tcp_probe")
int BPF_PROG(packet_tcp, struct sock *sock)
{
	return packet_is_for(sock);
}

SEC("fentry/handle_mm_fault")
int BPF_PROG(fault_begins)
{
	struct cpu *cpu = this_cpu();

	if (!cpu)
		return 0;
	if (!active(cpu) && !current_in_job())
		return 0;
	if (!take(cpu))
		return 0;
	if (active(cpu)) {
		charge_now(cpu);
		cpu->call.faults++;
	} else if (looking()) {
		begin(cpu, NUMBER_FAULT, 1);
		cpu->call.faults = 1;
	}
	release(cpu);
	return 0;
}

SEC("fexit/handle_mm_fault")
int BPF_PROG(fault_ends, struct vm_area_struct *vma, unsigned long address,
	     unsigned int flags, struct pt_regs *regs, unsigned int result)
{
	struct cpu *cpu = this_cpu();

	if (!cpu || !active(cpu) || !cpu->call.faults || !take(cpu))
		return 0;
	charge_now(cpu);
	/* One that has to be tried again is the same fault. */
	if (!(result & FAULT_RETRY))
		count(&cpu->call, PART_FAULT);
	cpu->call.faults--;
	if (!cpu->call.faults && cpu->call.trap)
		finish(cpu, NULL, 0);
	release(cpu);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
