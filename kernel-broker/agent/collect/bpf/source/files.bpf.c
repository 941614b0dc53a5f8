/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Counts what one job does to each file: calls, bytes, sizes, order.
 *
 * Reads and writes are seen when the kernel's file layer returns, where the
 * file is at hand and the outcome known, by whatever system call asked. Only the end is hooked, and time is not measured here: the system
 * call collector does that.
 *
 * All threads of a job share a file's record, hence the atomic additions. The
 * order of calls is kept without: two threads that write one file at the same
 * instant have no order.
 */
#include "filetable.h"

static __always_inline void of_type(__u32 type, __u32 way, long result)
{
	struct type_record *record = bpf_map_lookup_elem(&types, &type);

	if (!record)
		return;
	record->traffic[way].calls++;
	if (result >= 0)
		record->traffic[way].bytes += (__u64)result;
	else
		record->traffic[way].failed++;
}

static __always_inline void overflowed(__u32 way, long result)
{
	struct overflow *lost = overflow();

	if (!lost)
		return;
	lost->traffic[way].calls++;
	if (result > 0)
		lost->traffic[way].bytes += (__u64)result;
}

static __always_inline void moved(struct file_traffic *traffic, __u64 asked,
				  __u64 bytes, __u64 end)
{
	__u64 start = end - bytes;

	__sync_fetch_and_add(&traffic->bytes, bytes);
	if (asked < SMALL_BYTES)
		__sync_fetch_and_add(&traffic->small, 1);
	if (bytes == 0) {
		__sync_fetch_and_add(&traffic->nothing, 1);
		return;
	}
	if (bytes < asked)
		__sync_fetch_and_add(&traffic->cut, 1);
	__sync_fetch_and_add(&traffic->sizes[log2_bucket(bytes, SIZES)], 1);
	if (start == traffic->next)
		__sync_fetch_and_add(&traffic->sequential, 1);
	traffic->next = end;
	if (bytes > traffic->most)
		traffic->most = bytes;
	if (!traffic->least || bytes < traffic->least)
		traffic->least = bytes;
}

static __always_inline int done(struct file_record *record, __u64 size,
				__u64 asked, __u64 end, long result, __u32 way)
{
	struct file_traffic *traffic = &record->traffic[way];

	__sync_fetch_and_add(&traffic->calls, 1);
	record->last = tick;
	if (result < 0) {
		__sync_fetch_and_add(&traffic->failed, 1);
		return 0;
	}
	record->size = size;
	moved(traffic, asked, (__u64)result, end);
	return 0;
}

/* A stream has no position. */
static __always_inline __u64 at(const long long *position)
{
	__u64 end = 0;

	if (position)
		bpf_probe_read_kernel(&end, sizeof(end), position);
	return end;
}

static __always_inline int transferred(struct file *file, __u64 asked,
				       const long long *position, long result,
				       __u32 way)
{
	struct files_cpu *cpu = call_of_job();
	struct file_record *record;
	struct facts facts = {};
	struct inode *inode;

	if (!cpu)
		return 0;
	inode = file->f_inode;
	record = kept(cpu, file, inode);
	if (!record) {
		look_near(file, &facts);
		if (facts.type != TYPE_REGULAR) {
			of_type(facts.type, way, result);
			return 0;
		}
		record = record_of(cpu, file, inode, &facts);
	}
	if (!record) {
		overflowed(way, result);
		return 0;
	}
	return done(record, (__u64)inode->i_size, asked, at(position), result,
		    way);
}

SEC("fexit/vfs_read")
int BPF_PROG(file_read, struct file *file, char *buffer, unsigned long asked,
	     long long *position, long result)
{
	return transferred(file, asked, position, result, READING);
}

SEC("fexit/vfs_write")
int BPF_PROG(file_written, struct file *file, const char *buffer,
	     unsigned long asked, long long *position, long result)
{
	return transferred(file, asked, position, result, WRITING);
}

/*
 * What has no function of its own that every call goes through, since the
 * compiler puts it into its callers, is taken at the system call; there the
 * file has to be found by its number. How much a vector asks for is not looked
 * up: what was moved counts.
 */
static __always_inline int vector(struct pt_regs *regs, bool positioned,
				  long result, __u32 way)
{
	__u64 bytes = result > 0 ? (__u64)result : 0, end;
	struct files_cpu *cpu = call_of_job();
	struct file_record *record;
	struct facts facts = {};
	struct file *file;

	if (!cpu)
		return 0;
	file = open_file((__u32)regs->di);
	if (!file)
		return 0;
	end = positioned ? BPF_CORE_READ(regs, r10) + bytes :
			   (__u64)BPF_CORE_READ(file, f_pos);
	look_far(file, &facts);
	if (facts.type != TYPE_REGULAR) {
		of_type(facts.type, way, result);
		return 0;
	}
	record = record_of(cpu, file, BPF_CORE_READ(file, f_inode), &facts);
	if (!record) {
		overflowed(way, result);
		return 0;
	}
	return done(record, facts.size, bytes, end, result, way);
}

#define VECTOR(call, positioned, way)                                  \
	SEC("fexit/__x64_sys_" #call)                                  \
	int BPF_PROG(vector_##call, struct pt_regs *regs, long result) \
	{                                                              \
		return vector(regs, positioned, result, way);          \
	}

VECTOR(readv, false, READING)
VECTOR(writev, false, WRITING)
VECTOR(preadv, true, READING)
VECTOR(pwritev, true, WRITING)

/* The record of the file that a system call names, if there is one. */
static __always_inline struct file_record *named(struct pt_regs *regs)
{
	struct files_cpu *cpu = call_of_job();
	struct file_record *record;
	struct facts facts = {};
	struct inode *inode;
	struct file *file;

	if (!cpu)
		return NULL;
	file = open_file((__u32)regs->di);
	if (!file)
		return NULL;
	inode = BPF_CORE_READ(file, f_inode);
	record = kept(cpu, file, inode);
	if (record)
		return record;
	look_far(file, &facts);
	if (facts.type != TYPE_REGULAR)
		return NULL;
	return record_of(cpu, file, inode, &facts);
}

SEC("fexit/__x64_sys_lseek")
int BPF_PROG(file_sought, struct pt_regs *regs, long result)
{
	struct file_record *record;

	if (result < 0)
		return 0;
	record = named(regs);
	if (!record)
		return 0;
	__sync_fetch_and_add(&record->seeks, 1);
	if ((__u64)result == record->traffic[READING].next ||
	    (__u64)result == record->traffic[WRITING].next)
		__sync_fetch_and_add(&record->idle_seeks, 1);
	return 0;
}

static __always_inline int synced(struct pt_regs *regs)
{
	struct file_record *record = named(regs);

	if (record)
		__sync_fetch_and_add(&record->syncs, 1);
	return 0;
}

SEC("fexit/__x64_sys_fsync")
int BPF_PROG(file_synced, struct pt_regs *regs)
{
	return synced(regs);
}

SEC("fexit/__x64_sys_fdatasync")
int BPF_PROG(file_synced_data, struct pt_regs *regs)
{
	return synced(regs);
}

SEC("fentry/security_mmap_file")
int BPF_PROG(file_mapped, struct file *file)
{
	struct files_cpu *cpu = file ? call_of_job() : NULL;
	struct file_record *record;
	struct facts facts = {};

	if (!cpu)
		return 0;
	look_near(file, &facts);
	if (facts.type != TYPE_REGULAR)
		return 0;
	record = record_of(cpu, file, file->f_inode, &facts);
	if (record)
		__sync_fetch_and_add(&record->maps, 1);
	return 0;
}

/* One of the few places where the kernel lets a program ask for a path. */
SEC("fentry/security_file_open")
int BPF_PROG(file_opened, struct file *file)
{
	struct files_cpu *cpu = call_of_job();
	struct file_record *record;
	struct overflow *lost;
	struct facts facts = {};
	__u64 next;

	if (!cpu)
		return 0;
	__sync_fetch_and_add(&opened, 1);
	look_near(file, &facts);
	if (facts.type != TYPE_REGULAR)
		return 0;
	record = record_of(cpu, file, file->f_inode, &facts);
	if (!record) {
		lost = overflow();
		if (lost)
			lost->opens++;
		return 0;
	}
	__sync_fetch_and_add(&record->opens, 1);
	record->flags |= file->f_flags;
	record->size = facts.size;
	record->last = tick;
	/* Whoever opens a file begins at its start, or at its end. */
	next = record->flags & OPEN_APPEND ? record->size : 0;
	record->traffic[READING].next = next;
	record->traffic[WRITING].next = next;
	if (!record->whole_path &&
	    bpf_d_path(&file->f_path, record->path, PATH_BYTES) > 0)
		record->whole_path = 1;
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
