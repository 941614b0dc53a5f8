/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What is behind a file descriptor of the current task, for programs that have
 * no file as an argument: each load is a call into the kernel.
 */
#ifndef OPENFILE_H
#define OPENFILE_H

#include "job.h"
#include "files.h"

enum { TYPE_SHIFT = 12, TYPE_REGULAR = 010 };

/* What is looked up of a file at each call. */
struct facts {
	struct file_key key;
	__u64 size;
	__u32 type;
};

static __always_inline struct file *open_file(__u32 number)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct fdtable *table = task->files->fdt;
	struct file *file = NULL;

	if (number >= table->max_fds)
		return NULL;
	bpf_probe_read_kernel(&file, sizeof(file), table->fd + number);
	return file;
}

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

/* The last name of the file; false if there is none. */
static __always_inline bool last_name(struct file *file, char *to)
{
	const unsigned char *name =
		BPF_CORE_READ(file, f_path.dentry, d_name.name);

	return bpf_probe_read_kernel_str(to, PATH_BYTES, name) >= 0;
}

#endif
