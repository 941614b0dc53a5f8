// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

// job show names each wait of a job with its time; what ended and what goes on alike.
func TestWaitsOf(t *testing.T) {
	noon := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	type event struct {
		at          int // seconds after noon
		node, event string
	}
	for name, c := range map[string]struct {
		phase  api.AllocationPhase
		events []event
		want   []string
	}{
		"ready": {api.AllocationPhase_ALLOCATION_PHASE_READY, []event{{0, "", "accepted"}, {4, "", "switching"}, {9, "n2", "attested"}, {14, "n1", "attested"}, {16, "", "ready"}, {90, "n2", "attested"}},
			[]string{"its turn: other jobs switched first 4s", "the nodes to boot, the last of n1 10s", "Slurm to register the nodes 2s"}},
		"kept nodes need no boot": {api.AllocationPhase_ALLOCATION_PHASE_DONE, []event{{0, "", "accepted"}, {0, "", "switching"}, {1, "", "ready"}, {30, "", "done"}},
			[]string{"Slurm to register the nodes 1s"}},
		"booting still": {api.AllocationPhase_ALLOCATION_PHASE_SWITCHING, []event{{0, "", "accepted"}, {0, "", "switching"}, {9, "n2", "attested"}}, []string{"the nodes to boot 20s"}},
		"failed":        {api.AllocationPhase_ALLOCATION_PHASE_FAILED, []event{{0, "", "accepted"}, {1, "", "switching"}, {8, "", "failed"}}, []string{"its turn: other jobs switched first 1s", "the nodes to boot 7s"}},
		"in the queue":  {api.AllocationPhase_ALLOCATION_PHASE_WAITING, nil, nil},
	} {
		j := &api.Job{Phase: c.phase}
		for _, e := range c.events {
			j.Timeline = append(j.Timeline, &api.TimelineEvent{At: timestamppb.New(noon.Add(time.Duration(e.at) * time.Second)), Node: e.node, Event: e.event})
		}
		var got []string
		for _, w := range waitsOf(j, noon.Add(20*time.Second)) {
			got = append(got, fmt.Sprint(w.what, " ", w.took))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
