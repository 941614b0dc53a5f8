// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"strings"
	"sync"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// index knows the keys of all records of a kind, those too that are over and
// only in the store. So the newest are read, and the oldest forgotten, without
// reading all the others: a store does not find them by itself (store.Range).
// Safe for concurrent use; the zero value is empty.
type index struct {
	mu      sync.Mutex
	entries []entry // sorted by key, and so the newest is last
	// most bytes of records to keep; 0: no limit.
	most int64
}

// entry is one record.
type entry struct {
	key string
	job kb.JobID // that the record is about; zero as long as it has none
	uid uint32   // of the job's user
	// bytes that the record takes in the store.
	bytes int
}

func (x *index) search(key string) (int, bool) {
	return slices.BinarySearchFunc(x.entries, key, func(e entry, key string) int { return strings.Compare(e.key, key) })
}

// replace takes in what the store has, sorted by key.
func (x *index) replace(entries []entry) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.entries = entries
}

func (x *index) put(e entry) {
	x.mu.Lock()
	defer x.mu.Unlock()
	at, has := x.search(e.key)
	if has {
		x.entries[at] = e
		return
	}
	x.entries = slices.Insert(x.entries, at, e)
}

func (x *index) drop(key string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if at, has := x.search(key); has {
		x.entries = slices.Delete(x.entries, at, at+1)
	}
}

// newest returns up to limit keys of such records, the newest first.
func (x *index) newest(limit int, such func(entry) bool) []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	var keys []string
	for _, e := range slices.Backward(x.entries) {
		if len(keys) >= limit {
			break
		}
		if such(e) {
			keys = append(keys, e.key)
		}
	}
	return keys
}

// last returns the newest key that begins with prefix; empty if there is none.
func (x *index) last(prefix string) string {
	x.mu.Lock()
	defer x.mu.Unlock()
	at, _ := x.search(prefix + "\xff")
	if at == 0 || !strings.HasPrefix(x.entries[at-1].key, prefix) {
		return ""
	}
	return x.entries[at-1].key
}

// beyond returns the keys of all but the newest keep, and of those that are more than the bytes to keep, the oldest
// first.
func (x *index) beyond(keep int) []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	var keys []string
	for _, e := range x.entries[:len(x.entries)-min(keep, x.fitting())] {
		keys = append(keys, e.key)
	}
	return keys
}

// fitting is how many of the newest records the bytes to keep suffice for, and one in any case. The lock is held.
func (x *index) fitting() int {
	if x.most == 0 {
		return len(x.entries)
	}
	left := x.most
	for n := range x.entries {
		if left -= int64(x.entries[len(x.entries)-1-n].bytes); left < 0 {
			return max(n, 1)
		}
	}
	return len(x.entries)
}
