// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"errors"
	"testing"
)

func TestSetLists(t *testing.T) {
	one, other := sample("io", true, 5), sample("io", true, 6)
	other.Workload = "syscalls"
	set, err := NewSet([]Sample{one, other})
	if err != nil {
		t.Fatal(err)
	}
	if got := set.Metrics(); len(got) != 1 || got[0] != KernelWeighed {
		t.Errorf("metrics %v", got)
	}
	if runs := set.Runs(KernelWeighed); len(runs) != 2 || runs[0].Workload != "syscalls" || runs[1].Workload != "write8" {
		t.Errorf("runs %v", runs)
	}
	if _, err := NewSet([]Sample{one, one}); !errors.Is(err, ErrTwice) {
		t.Errorf("measured twice: %v", err)
	}
}
