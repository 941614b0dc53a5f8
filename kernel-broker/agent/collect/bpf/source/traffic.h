/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What one call does to the figures of its file, or of all files of its type.
 */
#ifndef TRAFFIC_H
#define TRAFFIC_H

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

#endif
