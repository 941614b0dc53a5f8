// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// Ended jobs are forgotten by their bytes too, also those that were there at the start.
func TestPruneByBytes(t *testing.T) {
	first, s := newRecords(t)
	var all []*kb.Allocation
	for job := uint32(1); job <= 10; job++ {
		a := allocation(job, 0, true)
		a.Reason = noise(2000)
		all = append(all, a)
	}
	if err := first.commit(t.Context(), nil, all); err != nil {
		t.Fatal(err)
	}
	again := &records{store: s}
	if err := again.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	held, _ := again.jobIndex.Held()
	again.jobIndex.Most, first.jobIndex.Most = held*3/10, held*3/10
	for _, r := range []*records{again, first} {
		if got := len(r.jobIndex.Prunable(100)); got < 6 || got > 8 {
			t.Errorf("%d of 10 are too many, want some 7", got)
		}
	}
	if err := jobKind.Prune(t.Context(), again.store, &again.jobIndex, 100); err != nil {
		t.Fatal(err)
	}
	if list, err := again.jobs(t.Context(), 100, nil); err != nil || len(list) > 4 || len(list) == 0 || list[0].ID.Job != 10 {
		t.Errorf("%d jobs are left, %v", len(list), err)
	}
}
