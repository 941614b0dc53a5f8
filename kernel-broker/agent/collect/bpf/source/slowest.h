/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The slowest single calls of each kind. Each CPU knows how slow a call of a kind
 * has to be to get among them, so that any other call pays for one comparison.
 * That bound only grows; one that is out of date costs a look into the table.
 */
#ifndef SLOWEST_H
#define SLOWEST_H

#include "callstate.h"
#include "openfile.h"

/* Set before the programs are loaded: FILE_* of each call, and the name of the
 * processes whose calls are not wanted. */
const volatile __u8 file_in[NUMBERS] = {};
const volatile __u64 left_out[2] = {};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, NUMBERS);
	__type(key, __u32);
	__type(value, struct slow_calls);
} slowest SEC(".maps");

/* Too large for the stack. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct slow_call);
} drafts SEC(".maps");

/*
 * The arguments are still there when a call ends. A descriptor may have been
 * closed meanwhile, and memory may be gone: then there is no name.
 */
static __always_inline void name_file(struct slow_call *draft, __u32 where,
				      struct pt_regs *regs)
{
	__u32 number = (__u32)BPF_CORE_READ(regs, di);
	struct facts facts = {};
	struct file *file;
	const void *path;

	if (where & (FILE_PATH | FILE_PATH_AT)) {
		path = where & FILE_PATH ? (void *)BPF_CORE_READ(regs, di) :
					   (void *)BPF_CORE_READ(regs, si);
		if (bpf_probe_read_user_str(draft->name, PATH_BYTES, path) < 0)
			draft->name[0] = 0;
		if (where & FILE_OPENS)
			number = (__u32)draft->result;
		/* An empty path means the descriptor. */
		else if (where & FILE_PATH || draft->name[0])
			return;
	}
	file = open_file(number);
	if (!file)
		return;
	look_far(file, &facts);
	draft->file = facts.key;
	draft->type = facts.type + 1;
	if (!draft->name[0] && !last_name(file, draft->name))
		draft->name[0] = 0;
}

/* Instead of the least of them, which may have grown since. */
static __always_inline __u64 keep(struct slow_calls *kind,
				  const struct slow_call *draft)
{
	__u64 least = kind->calls[0].ns, floor;
	__u32 place = 0;

	for (__u32 i = 1; i < MOST_SLOW; i++) {
		if (kind->calls[i].ns < least) {
			least = kind->calls[i].ns;
			place = i;
		}
	}
	if (draft->ns > least)
		kind->calls[place & (MOST_SLOW - 1)] = *draft;
	floor = kind->calls[0].ns;
	for (__u32 i = 1; i < MOST_SLOW; i++) {
		if (kind->calls[i].ns < floor)
			floor = kind->calls[i].ns;
	}
	kind->floor = floor;
	return floor;
}

static __noinline void note_slow(struct cpu *cpu, struct call_stats *stats,
				 struct pt_regs *regs, long result, __u64 ns)
{
	__u32 number = cpu->call.number, zero = 0, tgid, where;
	struct process_name *process;
	struct slow_call *draft;
	struct slow_calls *kind;
	__u64 who;

	/* The most of all CPUs is right: one had what the bound comes from. */
	if (ns > stats->most)
		stats->most = ns;
	kind = bpf_map_lookup_elem(&slowest, &number);
	draft = bpf_map_lookup_elem(&drafts, &zero);
	if (!kind || !draft)
		return;
	if (ns <= kind->floor) {
		stats->floor = kind->floor;
		return;
	}
	who = bpf_get_current_pid_tgid();
	tgid = (__u32)(who >> 32);
	process = bpf_map_lookup_elem(&names, &tgid);
	if (process && ((__u64 *)process)[0] == left_out[0] &&
	    ((__u64 *)process)[1] == left_out[1])
		return;
	draft->began = cpu->call.began;
	draft->ns = ns;
	draft->result = result;
	draft->tgid = tgid;
	draft->tid = (__u32)who;
	bpf_get_current_comm(draft->comm, sizeof(draft->comm));
#pragma clang loop unroll(full)
	for (__u32 part = 0; part < PARTS; part++) {
		draft->part_ns[part] = cpu->call.ns[part];
		draft->part_count[part] = cpu->call.count[part];
	}
	draft->type = 0;
	__builtin_memset(&draft->file, 0, sizeof(draft->file));
	draft->name[0] = 0;
	where = number;
	/* The verifier follows the register that is compared and no other. */
	asm volatile("" : "+r"(where));
	where = where < NUMBERS ? file_in[where] : 0;
	if (where)
		name_file(draft, where, regs);
	bpf_spin_lock(&kind->lock);
	stats->floor = keep(kind, draft);
	bpf_spin_unlock(&kind->lock);
}

#endif
