/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the syscalls programs share with the collector in Go, which has the
 * same layouts.
 */
#ifndef SYSCALLS_H
#define SYSCALLS_H

#include <linux/bpf.h>
#include <linux/types.h>

#include "files.h"

/* What the time of a call went to. Each nanosecond is in one part only. */
enum part {
	PART_CALL,  /* the call's own work */
	PART_FAULT, /* page faults, but for what they waited */
	PART_FAULT_WAIT,
	PART_IRQ,        /* hardware interrupts and those between CPUs */
	PART_SOFTIRQ,    /* soft interrupts, but for packets */
	PART_PACKET_JOB, /* packets for the job's own sockets */
	PART_PACKET_OTHER,
	PART_WAIT_PACKET, /* slept until a packet came */
	PART_WAIT_DEVICE, /* until an interrupt or a timer */
	PART_WAIT_JOB,    /* until a task of this job */
	PART_WAIT_OTHER,  /* until another task */
	PART_WAIT_UNKNOWN,
	PART_READY_JOB, /* woken, but a task of this job had the CPU */
	PART_READY_OTHER,
	PART_READY_IDLE,    /* woken, and the CPU had to be woken too */
	PART_PREEMPTED_JOB, /* had to leave the CPU to a task of this job */
	PART_PREEMPTED_OTHER,
	PARTS,
	PARTS_ROUND = 32 /* a power of two, for the verifier */
};

enum {
	TIMES = 40,         /* buckets: the last begins at 2^39 ns, 9 minutes */
	NUMBERS = 480,      /* entries of the table of calls */
	NUMBER_FAULT = 478, /* a page fault outside of any call */
	NUMBER_FOREIGN = 479, /* calls of another ABI, 32 bits or x32 */
	MOST_SLOW = 8,        /* a power of two: single calls of a kind */
	RECENT = 16 /* a power of two: calls of a process that a CPU adds up */
};

struct call_stats {
	__u64 count;
	__u64 failed;
	__u64 ns;
	__u64 most;
	__u64 floor; /* what is slower may be among the slowest */
	__u64 times[TIMES];
	__u64 part_ns[PARTS];
	__u64 part_count[PARTS];
};

struct process_key {
	__u32 tgid;
	__u32 number;
};

struct process_calls {
	__u64 count;
	__u64 ns;
};

struct process_name {
	char comm[16];
};

/* Where a call's arguments name a file. */
enum {
	FILE_NUMBER = 1,  /* a descriptor, the first one */
	FILE_PATH = 2,    /* a path, the first one */
	FILE_PATH_AT = 4, /* a path, the second one */
	FILE_OPENS = 8    /* besides, the result is a descriptor */
};

struct slow_call {
	__u64 began;
	__u64 ns; /* 0: no call has the place */
	__s64 result;
	__u32 tgid;
	__u32 tid;
	char comm[16];
	__u64 part_ns[PARTS];
	__u32 part_count[PARTS];
	__u32 type; /* of the file's inode, and one; 0: no file was found */
	struct file_key file;
	char name[PATH_BYTES]; /* the path asked for, or the file's last name */
};

struct slow_calls {
	struct bpf_spin_lock lock;
	__u32 unused;
	__u64 floor; /* the least that is kept */
	struct slow_call calls[MOST_SLOW];
};

/* Counters of what could not be counted in its place. */
struct lost {
	__u64 calls; /* of processes that found no room in the table */
	__u64 ns;
	__u64 away; /* times a call's state found no room while away */
};

#endif
