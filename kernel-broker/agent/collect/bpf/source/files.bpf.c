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
#include "job.h"
#include "files.h"

enum { TYPE_SHIFT = 12, TYPE_REGULAR = 010, OPEN_APPEND = 02000 };

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MOST_FILES);
	__type(key, struct file_key);
	__type(value, struct file_record);
} files SEC(".maps");

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

/* A record is too large for the stack; this is where a new one is made. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct file_record);
} fresh SEC(".maps");

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

/* What is looked up of a file at each call. */
struct facts {
	struct file_key key;
	__u64 size;
	__u32 type;
};

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

/* Of a file that was found by its number: each load is a call into the kernel. */
static __always_inline void look_far(struct file *file, struct facts *facts)
{
	struct inode *inode = BPF_CORE_READ(file, f_inode);

	facts->type =
		(BPF_CORE_READ(inode, i_mode) >> TYPE_SHIFT) & (TYPES - 1);
	facts->size = (__u64)BPF_CORE_READ(inode, i_size);
	facts->key.inode = BPF_CORE_READ(inode, i_ino);
	facts->key.device = BPF_CORE_READ(inode, i_sb, s_dev);
	facts->key.generation = BPF_CORE_READ(inode, i_generation);
}

/* A call of the job, if it is looked at; what to note it in. */
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

static __always_inline void keep(struct files_cpu *cpu, struct file *file,
				 struct inode *inode, const struct facts *facts)
{
	cpu->file = (__u64)file;
	cpu->inode = (__u64)inode;
	cpu->during = period();
	cpu->key = facts->key;
}

/* A record that has the file's last name only; an open gives the whole path. */
static __always_inline struct file_record *blank(struct file *file)
{
	struct file_record *record;
	const unsigned char *name;
	__u32 zero = 0;

	record = bpf_map_lookup_elem(&fresh, &zero);
	if (!record)
		return NULL;
	__builtin_memset(record, 0, sizeof(*record) - PATH_BYTES);
	record->magic = BPF_CORE_READ(file, f_inode, i_sb, s_magic);
	name = BPF_CORE_READ(file, f_path.dentry, d_name.name);
	if (bpf_probe_read_kernel_str(record->path, PATH_BYTES, name) < 0)
		record->path[0] = 0;
	return record;
}

static __always_inline struct file_record *record_of(struct file *file,
						     struct facts *facts)
{
	struct file_record *record;
	struct overflow *sums;

	record = bpf_map_lookup_elem(&files, &facts->key);
	if (record)
		return record;
	sums = overflow();
	record = blank(file);
	if (!record || !sums)
		return NULL;
	if (!bpf_map_update_elem(&files, &facts->key, record, BPF_NOEXIST))
		sums->made++;
	return bpf_map_lookup_elem(&files, &facts->key);
}

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

static __always_inline int done(struct file *file, struct facts *facts,
				__u64 asked, __u64 end, long result, __u32 way)
{
	struct file_record *record;
	struct file_traffic *traffic;

	if (facts->type != TYPE_REGULAR) {
		of_type(facts->type, way, result);
		return 0;
	}
	record = record_of(file, facts);
	if (!record) {
		overflowed(way, result);
		return 0;
	}
	traffic = &record->traffic[way];
	__sync_fetch_and_add(&traffic->calls, 1);
	record->last = tick;
	if (result < 0) {
		__sync_fetch_and_add(&traffic->failed, 1);
		return 0;
	}
	record->size = facts->size;
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
	struct facts facts = {};

	if (!cpu)
		return 0;
	look_near(file, &facts);
	if (facts.type == TYPE_REGULAR)
		keep(cpu, file, file->f_inode, &facts);
	return done(file, &facts, asked, at(position), result, way);
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
 * file has to be found by its number.
 */
static __always_inline struct file *file_of(struct pt_regs *regs)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct fdtable *table = task->files->fdt;
	__u32 number = (__u32)regs->di;
	struct file *file = NULL;

	if (number >= table->max_fds)
		return NULL;
	bpf_probe_read_kernel(&file, sizeof(file), table->fd + number);
	return file;
}

/* How much a vector asks for is not looked up: what was moved counts. */
static __always_inline int vector(struct pt_regs *regs, bool positioned,
				  long result, __u32 way)
{
	__u64 bytes = result > 0 ? (__u64)result : 0, end;
	struct facts facts = {};
	struct file *file;

	if (!call_of_job())
		return 0;
	file = file_of(regs);
	if (!file)
		return 0;
	end = positioned ? BPF_CORE_READ(regs, r10) + bytes :
			   (__u64)BPF_CORE_READ(file, f_pos);
	look_far(file, &facts);
	return done(file, &facts, bytes, end, result, way);
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
	struct facts facts = {};
	struct inode *inode;
	struct file *file;

	if (!cpu)
		return NULL;
	file = file_of(regs);
	if (!file)
		return NULL;
	inode = BPF_CORE_READ(file, f_inode);
	if (cpu->during && cpu->during == period() &&
	    cpu->file == (__u64)file && cpu->inode == (__u64)inode) {
		facts.key = cpu->key;
		return record_of(file, &facts);
	}
	look_far(file, &facts);
	if (facts.type != TYPE_REGULAR)
		return NULL;
	keep(cpu, file, inode, &facts);
	return record_of(file, &facts);
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
	struct file_record *record;
	struct facts facts = {};

	if (!file || !call_of_job())
		return 0;
	look_near(file, &facts);
	if (facts.type != TYPE_REGULAR)
		return 0;
	record = record_of(file, &facts);
	if (record)
		__sync_fetch_and_add(&record->maps, 1);
	return 0;
}

/* One of the few places where the kernel lets a program ask for a path. */
SEC("fentry/security_file_open")
int BPF_PROG(file_opened, struct file *file)
{
	struct file_record *record;
	struct overflow *lost;
	struct facts facts = {};
	__u64 next;

	if (!call_of_job())
		return 0;
	__sync_fetch_and_add(&opened, 1);
	look_near(file, &facts);
	if (facts.type != TYPE_REGULAR)
		return 0;
	record = record_of(file, &facts);
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
