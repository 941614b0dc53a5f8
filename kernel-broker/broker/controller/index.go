// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"sort"
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
}

// entry is one record.
type entry struct {
	key string
	job kb.JobID // that the record is about; zero as long as it has none
	uid uint32   // of the job's user
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

// beyond returns the keys of all but keep, the oldest first of the user that holds most at that moment: many records of
// one user cost nobody else his. The newest record of all stays.
func (x *index) beyond(keep int) []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	over := len(x.entries) - max(keep, 1)
	if over <= 0 {
		return nil
	}
	held := map[uint32]int{}
	for _, e := range x.entries {
		held[e.uid]++
	}
	share := fairShare(held, over)
	var keys []string
	for _, e := range x.entries[:len(x.entries)-1] {
		if len(keys) < over && held[e.uid] > share {
			held[e.uid]--
			keys = append(keys, e.key)
		}
	}
	// What is over beyond equal shares goes by age.
	for _, e := range x.entries[:len(x.entries)-1] {
		if len(keys) == over {
			break
		}
		if !slices.Contains(keys, e.key) && held[e.uid] == share {
			held[e.uid]--
			keys = append(keys, e.key)
		}
	}
	return keys
}

// fairShare is the least share for which no more than over records exceed it.
func fairShare(held map[uint32]int, over int) int {
	most := 0
	for _, n := range held {
		most = max(most, n)
	}
	return sort.Search(most, func(share int) bool {
		excess := 0
		for _, n := range held {
			excess += max(0, n-share)
		}
		return excess <= over
	})
}
