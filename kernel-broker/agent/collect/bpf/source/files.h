/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the files programs share with the collector in Go, which has the same
 * layouts.
 */
#ifndef FILES_H
#define FILES_H

#include <linux/types.h>

enum {
	SIZES = 32, /* buckets of bytes per call: 2^31 is the most */
	PATH_BYTES = 256,
	MOST_FILES = 16384,
	SMALL_BYTES = 4096 /* a write below it does not fill a page */
};

enum direction { READING, WRITING, DIRECTIONS };

/* What is no regular file has a place for each type of inode, mode >> 12. */
enum { TYPES = 16 };

struct file_key {
	__u64 inode;
	__u32 device; /* as the kernel has it: 12 bits major, 20 minor */
	__u32 generation;
};

/* One direction of one file. */
struct file_traffic {
	__u64 calls;
	__u64 bytes;
	__u64 failed;
	__u64 cut;        /* moved less than was asked for, not nothing */
	__u64 nothing;    /* moved nothing: the end of the file */
	__u64 small;      /* asked for less than SMALL_BYTES */
	__u64 sequential; /* began where the call before it ended */
	__u64 next;       /* where the last call ended */
	__u64 least;      /* bytes moved by one call, without nothing */
	__u64 most;
	__u64 sizes[SIZES];
};

struct file_record {
	struct file_traffic traffic[DIRECTIONS];
	__u64 opens;
	__u64 syncs;
	__u64 seeks;
	__u64 idle_seeks; /* to where the file's position was already */
	__u64 maps;
	__u64 size;
	__u64 magic; /* of the file system */
	__u64 last;  /* the agent's tick when it was touched last */
	__u32 flags; /* of open, all that were seen */
	__u32 whole_path;
	char path[PATH_BYTES];
};

struct type_record {
	struct {
		__u64 calls;
		__u64 bytes;
		__u64 failed;
	} traffic[DIRECTIONS];
};

/* Calls on files that found no room in the table. */
struct overflow {
	struct {
		__u64 calls;
		__u64 bytes;
	} traffic[DIRECTIONS];
	__u64 opens;
	__u64 made; /* records, of files that did find room */
};

/* What a CPU keeps to itself. */
struct files_cpu {
	__u64 events; /* that cost the job time */
	/*
	 * The open file that was read or written last, and the place of its
	 * record. It holds while the job opens no other: a file that was closed
	 * may have its place in memory taken by the next. And it holds while no
	 * record leaves the table.
	 */
	__u64 file;
	__u64 inode;
	__u64 during; /* see period() */
	__u32 cleared;
	__u32 place;
};

#endif
