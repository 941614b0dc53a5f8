/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The table of files: where the record of each is, and how a call on the file
 * of the call before it finds it at once. What calls do to a record is in
 * files.bpf.c.
 */
#ifndef FILETABLE_H
#define FILETABLE_H

#include "openfile.h"

enum { OPEN_APPEND = 02000, MODE_BACKING = 0x2000000 };

/*
 * A file's record has a place in an array, so that a call on the file of the
 * call before it finds the record without asking the table for its key.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MOST_FILES);
	__type(key, struct file_key);
	__type(value, __u32);
} places SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MOST_FILES);
	__type(key, __u32);
	__type(value, struct file_record);
} files SEC(".maps");

/* Places whose records the agent has taken, or nobody needed. */
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, MOST_FILES);
	__type(value, __u32);
} vacant SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, TYPES);
	__type(key, __u32);
	__type(value, struct type_record);
} types SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct overflow);
} overflows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct files_cpu);
} cpus SEC(".maps");

/* Counts seconds; the agent does it, so that no call has to ask a clock. */
volatile __u64 tick SEC(".data.tick") = 1;

/* Counts opens, so that what is known of an open file ends with the next. */
volatile __u32 opened = 0;

/* Places that were ever taken. */
volatile __u32 taken = 0;

/* Counts how often the agent took records out of the table. */
volatile __u32 cleared SEC(".data.cleared") = 0;

/* Nothing is kept where opens are not seen: then it is 0. */
static __always_inline __u64 period(void)
{
	return opened ? (__u64)look << 32 | opened : 0;
}

static __always_inline struct overflow *overflow(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&overflows, &zero);
}

/*
 * Of a file that is an argument of the program: plain loads, which the kernel
 * checks by their types and makes harmless.
 */
static __always_inline void look_near(struct file *file, struct facts *facts)
{
	struct inode *inode = file->f_inode;

	facts->type = (inode->i_mode >> TYPE_SHIFT) & (TYPES - 1);
	facts->size = (__u64)inode->i_size;
	facts->key.inode = inode->i_ino;
	facts->key.device = inode->i_sb->s_dev;
	facts->key.generation = inode->i_generation;
}

/* A call of the job, if it is observed; what to note it in. */
static __always_inline struct files_cpu *call_of_job(void)
{
	struct files_cpu *cpu;
	__u32 zero = 0;

	if (!current_in_job())
		return NULL;
	cpu = bpf_map_lookup_elem(&cpus, &zero);
	if (!cpu)
		return NULL;
	cpu->events++;
	return looking() ? cpu : NULL;
}

static __always_inline struct file_record *record_at(__u32 place)
{
	return bpf_map_lookup_elem(&files, &place);
}

/* The record of the file that this CPU had last, if it has it again. */
static __always_inline struct file_record *kept(const struct files_cpu *cpu,
						struct file *file,
						struct inode *inode)
{
	if (cpu->file != (__u64)file || cpu->inode != (__u64)inode ||
	    !cpu->during || cpu->during != period() || cpu->cleared != cleared)
		return NULL;
	return record_at(cpu->place);
}

/* A place for a record, which nobody else has. */
static __always_inline bool take_place(__u32 *place)
{
	if (taken < MOST_FILES) {
		*place = __sync_fetch_and_add(&taken, 1);
		if (*place < MOST_FILES)
			return true;
	}
	return !bpf_map_pop_elem(&vacant, place);
}

/* A record that has the file's last name only; an open gives the whole path. */
static __always_inline struct file_record *blank(__u32 place, struct file *file)
{
	struct file_record *record = record_at(place);

	if (!record)
		return NULL;
	__builtin_memset(record, 0, sizeof(*record) - PATH_BYTES);
	record->magic = BPF_CORE_READ(file, f_inode, i_sb, s_magic);
	if (!last_name(file, record->path))
		record->path[0] = 0;
	return record;
}

static __always_inline struct file_record *make_record(struct file *file,
						       struct facts *facts,
						       __u32 *place)
{
	struct file_record *record;
	struct overflow *sums = overflow();
	__u32 *others;

	if (!sums || !take_place(place))
		return NULL;
	record = blank(*place, file);
	if (!record)
		return NULL;
	if (!bpf_map_update_elem(&places, &facts->key, place, BPF_NOEXIST)) {
		sums->made++;
		return record;
	}
	/* Another CPU was first. */
	bpf_map_push_elem(&vacant, place, BPF_ANY);
	others = bpf_map_lookup_elem(&places, &facts->key);
	if (!others)
		return NULL;
	*place = *others;
	return record_at(*place);
}

/* The record of a file, which the next call on it finds at once. */
static __always_inline struct file_record *record_of(struct files_cpu *cpu,
						     struct file *file,
						     struct inode *inode,
						     struct facts *facts)
{
	/* Before the place is looked up: what is cleared after is seen. */
	__u32 was_cleared = cleared;
	struct file_record *record;
	__u32 place = 0, *known;

	known = bpf_map_lookup_elem(&places, &facts->key);
	if (known) {
		place = *known;
		record = record_at(place);
	} else {
		record = make_record(file, facts, &place);
	}
	if (!record)
		return NULL;
	cpu->file = (__u64)file;
	cpu->inode = (__u64)inode;
	cpu->during = period();
	cpu->cleared = was_cleared;
	cpu->place = place;
	return record;
}

#endif
