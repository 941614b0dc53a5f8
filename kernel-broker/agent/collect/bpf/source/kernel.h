/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The parts of the kernel's types that the collectors look at.
 *
 * Only names matter here: offsets and sizes are those of the running kernel,
 * which the loader takes from its BTF and writes into the programs (CO-RE). So
 * this is no copy of a kernel's header, and one build runs on all kernels that
 * have the fields. A field that was renamed or came later has a flavour of its
 * own, a type whose name ends with three underlines and a word.
 */
#ifndef KERNEL_H
#define KERNEL_H

#include <linux/bpf.h>
#include <linux/types.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#ifndef bool
#define bool _Bool
#define true 1
#define false 0
#endif
#define NULL ((void *)0)

#define KERNEL_TYPE __attribute__((preserve_access_index))

struct kernfs_node {
	__u64 id;
} KERNEL_TYPE;

struct cgroup {
	int level;
	struct kernfs_node *kn;
	struct cgroup *ancestors[0];
} KERNEL_TYPE;

/* Before 6.1. */
struct cgroup___ids {
	__u64 ancestor_ids[0];
} KERNEL_TYPE;

struct css_set {
	struct cgroup *dfl_cgrp;
} KERNEL_TYPE;

struct file;

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
} KERNEL_TYPE;

struct files_struct {
	struct fdtable *fdt;
} KERNEL_TYPE;

struct task_struct {
	unsigned int __state;
	int pid;
	int tgid;
	char comm[16];
	struct css_set *cgroups;
	struct files_struct *files;
} KERNEL_TYPE;

/* Before 5.14. */
struct task_struct___state {
	long state;
} KERNEL_TYPE;

/* x86's, under the names that it has inside the kernel. */
struct pt_regs {
	unsigned long r10;
	unsigned long dx;
	unsigned long si;
	unsigned long di;
	unsigned long cs;
	unsigned long sp;
} KERNEL_TYPE;

struct irqaction {
	const char *name;
} KERNEL_TYPE;

struct sk_buff;

struct sock_cgroup_data {
	struct cgroup *cgroup;
} KERNEL_TYPE;

struct sock {
	struct sock_cgroup_data sk_cgrp_data;
} KERNEL_TYPE;

struct vm_area_struct;

struct qstr {
	const unsigned char *name;
} KERNEL_TYPE;

struct dentry {
	struct dentry *d_parent;
	struct qstr d_name;
	struct super_block *d_sb;
} KERNEL_TYPE;

struct vfsmount;

struct path {
	struct vfsmount *mnt;
	struct dentry *dentry;
} KERNEL_TYPE;

struct super_block {
	__u32 s_dev;
	unsigned long s_magic;
} KERNEL_TYPE;

struct inode {
	unsigned short i_mode;
	struct super_block *i_sb;
	unsigned long i_ino;
	long long i_size;
	__u32 i_generation;
} KERNEL_TYPE;

struct file {
	struct path f_path;
	struct inode *f_inode;
	unsigned int f_flags;
	unsigned int f_mode;
	long long f_pos;
} KERNEL_TYPE;

#endif
