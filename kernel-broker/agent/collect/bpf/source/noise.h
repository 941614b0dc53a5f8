/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the noise program shares with the collector in Go, which has the same
 * layouts.
 */
#ifndef NOISE_H
#define NOISE_H

#include <linux/types.h>

enum source { SOURCE_IRQ, SOURCE_SOFTIRQ, SOURCE_NMI, SOURCE_THREAD };

enum { NOISE_TIMES = 32, MOST_CPUS = 8192, MOST_SOURCES = 16384 };

struct source_key {
	__u32 cpu;
	__u32 kind;
	char name[16];
};

struct source_sum {
	__u64 count;
	__u64 ns;
	__u64 most;
	__u64 most_at; /* the clock of CLOCK_MONOTONIC */
	__u64 times[NOISE_TIMES];
};

enum occupant {
	NOBODY, /* no task of the job wants this CPU */
	JOB,    /* one has it */
	THIEF   /* one could run, and another thread does */
};

/* One CPU; a multiple of the cache line, since its neighbours write too. */
struct noise_cpu {
	__u64 mark;
	__u64 job_ns;   /* a task of the job had the CPU, with interrupts */
	__u64 thief_ns; /* a task of the job waited for it */
	__u64 lost_ns;  /* sum of all noise */
	__u64 irq_began;
	__u64 irq_lost; /* what lost_ns was at the begin */
	__u64 soft_began;
	__u64 soft_lost;
	__u64 thief_began;
	__u64 thief_lost;
	__u32 occupant;
	__u32 victim; /* the task that waits */
	char irq[16];
	char thief[16];
	__u64 dropped; /* events that found no room */
} __attribute__((aligned(64)));

#endif
