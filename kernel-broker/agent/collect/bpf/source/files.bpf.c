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
#include "traffic.h"

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
 * file has to be found by its number. How much was asked for is not looked up:
 * what was moved counts.
 */
static __always_inline int at_file(struct files_cpu *cpu, struct file *file,
				   __u64 end, long result, __u32 way)
{
	__u64 bytes = result > 0 ? (__u64)result : 0;
	struct file_record *record;
	struct facts facts = {};

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

static __always_inline int by_number(struct files_cpu *cpu, __u32 number,
				     bool positioned, __u64 end, long result,
				     __u32 way)
{
	struct file *file = open_file(number);

	if (!file)
		return 0;
	if (!positioned)
		end = (__u64)BPF_CORE_READ(file, f_pos);
	return at_file(cpu, file, end, result, way);
}

static __always_inline int vector(struct pt_regs *regs, bool positioned,
				  long result, __u32 way)
{
	struct files_cpu *cpu = call_of_job();
	__u64 bytes = result > 0 ? (__u64)result : 0;

	if (!cpu)
		return 0;
	return by_number(cpu, (__u32)regs->di, positioned,
			 BPF_CORE_READ(regs, r10) + bytes, result, way);
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

/* The second versions use the file's own position where theirs is -1. */
#define VECTOR2(call, way)                                                 \
	SEC("fexit/__x64_sys_" #call)                                      \
	int BPF_PROG(vector_##call, struct pt_regs *regs, long result)     \
	{                                                                  \
		return vector(regs, BPF_CORE_READ(regs, r10) != (__u64)-1, \
			      result, way);                                \
	}

VECTOR2(preadv2, READING)
VECTOR2(pwritev2, WRITING)

/*
 * One side of a copy in the kernel. Its place, after the call, is where the
 * program wanted it, or the file's own.
 */
static __always_inline int copied(struct files_cpu *cpu, __u32 number,
				  __u64 place, long result, __u32 way)
{
	__u64 end = 0;

	if (place)
		bpf_probe_read_user(&end, sizeof(end), (void *)place);
	return by_number(cpu, number, place != 0, end, result, way);
}

/* Where nothing was read, nobody wrote. */
static __always_inline int copy(__u32 from, __u64 from_place, __u32 to,
				__u64 to_place, long result)
{
	struct files_cpu *cpu = call_of_job();

	if (!cpu)
		return 0;
	copied(cpu, from, from_place, result, READING);
	if (result != 0)
		copied(cpu, to, to_place, result, WRITING);
	return 0;
}

SEC("fexit/__x64_sys_sendfile64")
int BPF_PROG(copy_sendfile, struct pt_regs *regs, long result)
{
	return copy((__u32)BPF_CORE_READ(regs, si), BPF_CORE_READ(regs, dx),
		    (__u32)BPF_CORE_READ(regs, di), 0, result);
}

#define COPY(call)                                                   \
	SEC("fexit/__x64_sys_" #call)                                \
	int BPF_PROG(copy_##call, struct pt_regs *regs, long result) \
	{                                                            \
		return copy((__u32)BPF_CORE_READ(regs, di),          \
			    BPF_CORE_READ(regs, si),                 \
			    (__u32)BPF_CORE_READ(regs, dx),          \
			    BPF_CORE_READ(regs, r10), result);       \
	}

COPY(copy_file_range)
COPY(splice)

/*
 * Where the types have two functions of the system call's name, as Debian's
 * kernels do, the one below it. A file system in layers calls it again for the
 * file beneath, which says so or has a path that is not its own.
 */
static __always_inline bool beneath(struct file *file)
{
	return (BPF_CORE_READ(file, f_mode) & MODE_BACKING) ||
	       BPF_CORE_READ(file, f_path.dentry, d_sb) !=
		       BPF_CORE_READ(file, f_inode, i_sb);
}

SEC("fexit/vfs_copy_file_range")
int BPF_PROG(copy_ranges, struct file *from, long long from_place,
	     struct file *to, long long to_place, unsigned long asked,
	     unsigned int flags, long result)
{
	__u64 bytes = result > 0 ? (__u64)result : 0;
	struct files_cpu *cpu;

	if (beneath(from))
		return 0;
	cpu = call_of_job();
	if (!cpu)
		return 0;
	at_file(cpu, from, (__u64)from_place + bytes, result, READING);
	if (result != 0)
		at_file(cpu, to, (__u64)to_place + bytes, result, WRITING);
	return 0;
}

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
