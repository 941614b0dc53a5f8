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
	const unsigned char *name;

	if (!record)
		return NULL;
	__builtin_memset(record, 0, sizeof(*record) - PATH_BYTES);
	record->magic = BPF_CORE_READ(file, f_inode, i_sb, s_magic);
	name = BPF_CORE_READ(file, f_path.dentry, d_name.name);
	if (bpf_probe_read_kernel_str(record->path, PATH_BYTES, name) < 0)
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
	struct files_cpu *cpu = call_of_job();
	struct file_record *record;
	struct facts facts = {};
	struct file *file;

	if (!cpu)
		return 0;
	file = file_of(regs);
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
	file = file_of(regs);
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
