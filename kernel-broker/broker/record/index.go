// SPDX-License-Identifier: Apache-2.0

package record

import (
	"slices"
	"strings"
	"sync"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// Index knows the keys of all records of a kind, those too that are over and
// only in the store. So the newest are read, and the oldest forgotten, without
// reading all the others: a store does not find them by itself (store.Range).
// Safe for concurrent use; the zero value is empty.
type Index struct {
	mu      sync.Mutex
	entries []Entry // sorted by key
	// Most bytes of records to keep; 0: no limit.
	Most int64
}

// Entry is one record.
type Entry struct {
	Key string
	Job kb.JobID // that the record is about; zero as long as it has none
	UID uint32   // of the job's user
	// Made is when the record was; zero where the keys' order is that.
	Made time.Time
	// Bytes that the record takes in the store; those of a run's files in the store of artifacts.
	Bytes int64
	// Open: the record is of something that is not over, and stays.
	Open bool
}

func (x *Index) search(key string) (int, bool) {
	return slices.BinarySearchFunc(x.entries, key, func(e Entry, key string) int { return strings.Compare(e.Key, key) })
}

// Replace takes in what the store has, sorted by key.
func (x *Index) Replace(entries []Entry) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.entries = entries
}

func (x *Index) Put(e Entry) {
	x.mu.Lock()
	defer x.mu.Unlock()
	at, has := x.search(e.Key)
	if has {
		x.entries[at] = e
		return
	}
	x.entries = slices.Insert(x.entries, at, e)
}

func (x *Index) Drop(key string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if at, has := x.search(key); has {
		x.entries = slices.Delete(x.entries, at, at+1)
	}
}

// Newest returns up to limit keys of such records, the newest first.
func (x *Index) Newest(limit int, such func(Entry) bool) []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	var keys []string
	for _, e := range slices.Backward(x.byAge()) {
		if len(keys) >= limit {
			break
		}
		if such(e) {
			keys = append(keys, e.Key)
		}
	}
	return keys
}

// Last returns the key of the record that was made last of those whose keys begin with prefix; empty if there is none.
func (x *Index) Last(prefix string) string {
	x.mu.Lock()
	defer x.mu.Unlock()
	at, _ := x.search(prefix)
	var last Entry
	for _, e := range x.entries[at:] {
		if !strings.HasPrefix(e.Key, prefix) {
			break
		}
		if !e.Made.Before(last.Made) {
			last = e
		}
	}
	return last.Key
}

// Prunable returns the keys of what is more than keep records, or than the bytes to keep.
func (x *Index) Prunable(keep int) []string { return x.Exceeding(keep, x.Most) }

// Held is how many bytes all records have, and those that are not over.
func (x *Index) Held() (all, open int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, e := range x.entries {
		if all += e.Bytes; e.Open {
			open += e.Bytes
		}
	}
	return all, open
}

// Exceeding returns the keys of what is more than that, 0 for any number of bytes: the oldest of the user that holds most at
// that moment, so that many records of one user cost nobody else his. The newest record of all stays, and what is not over.
func (x *Index) Exceeding(keep int, mostBytes int64) []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	all := x.byAge()
	held := map[uint32]*share{}
	count, bytes := len(all), int64(0)
	for age, e := range all {
		if held[e.UID] == nil {
			held[e.UID] = &share{}
		}
		held[e.UID].add(age, e, age < len(all)-1)
		bytes += e.Bytes
	}
	var keys []string
	for {
		tooMany := count > max(keep, 1)
		if !tooMany && (mostBytes == 0 || bytes <= mostBytes) {
			return keys
		}
		most := largest(held, tooMany)
		if most == nil {
			return keys
		}
		e := all[most.take()]
		if count--; e.Open {
			continue
		}
		most.bytes -= e.Bytes
		bytes -= e.Bytes
		keys = append(keys, e.Key)
	}
}

// share is what a user holds of the records.
type share struct {
	count int
	bytes int64
	// ages of those that may go, the oldest first.
	ages []int
}

func (s *share) add(age int, e Entry, mayGo bool) {
	s.count++
	s.bytes += e.Bytes
	if mayGo {
		s.ages = append(s.ages, age)
	}
}

// take returns the age of the oldest, which goes.
func (s *share) take() int {
	age := s.ages[0]
	s.ages = s.ages[1:]
	s.count--
	return age
}

// largest is the share with most records, or most bytes, of which one may go; of equal ones that with the oldest.
func largest(held map[uint32]*share, byCount bool) *share {
	size := func(s *share) int64 {
		if byCount {
			return int64(s.count)
		}
		return s.bytes
	}
	var most *share
	for _, s := range held {
		if len(s.ages) > 0 && (most == nil || size(s) > size(most) || size(s) == size(most) && s.ages[0] < most.ages[0]) {
			most = s
		}
	}
	return most
}

// byAge are the entries, the oldest first: by when their records were made, and by key where that is not known. Slurm gives
// jobs' ids again from the first, in the end. The lock is held.
func (x *Index) byAge() []Entry {
	sorted := slices.Clone(x.entries)
	slices.SortStableFunc(sorted, func(a, b Entry) int { return a.Made.Compare(b.Made) })
	return sorted
}
