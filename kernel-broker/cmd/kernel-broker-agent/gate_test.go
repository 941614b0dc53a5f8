// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

// refusals are the node's latest gate refusals; needs the lock.
func refusals(b *fakeBroker) []*api.GateRefusal {
	for i := len(b.said) - 1; i >= 0; i-- {
		if s := b.said[i].GetSlurmd(); s != nil {
			return s.GetGateRefusals()
		}
	}
	return nil
}

// Gate refusals noted beside node.state reach the broker, and again on a new stream; those of an older boot do not.
func TestGateRefusalsAreReported(t *testing.T) {
	b, n := servingStock(t)
	line := func(boot string, job int) string {
		return fmt.Sprintf("boot_id=%s time=1790000000 job=%d cause=wanted mitgcm\n", boot, job)
	}
	boot := n.state().BootID
	path, err := filepath.Rel(n.dir, filepath.Join(filepath.Dir(n.config.NodeState), "gate.refusals"))
	if err != nil {
		t.Fatal(err)
	}
	n.file(path, line(strings.Repeat("0", 36), 5)+line(boot, 7))
	one := func() bool {
		r := refusals(b)
		return len(r) == 1 && r[0].GetJobId() == 7 && r[0].GetCause() == "wanted mitgcm" && r[0].GetAt().GetSeconds() == 1790000000
	}
	b.until("the refusal", one)
	n.file(path, line(boot, 7)+line(boot, 8))
	b.until("the next one", func() bool { r := refusals(b); return len(r) == 2 && r[1].GetJobId() == 8 })
	n.file(path, line(boot, 7))
	b.until("what is left", one)
	n.stop()
	b.with(func() { b.said = nil })
	n.up()
	b.until("the refusal on a new stream", one)
}
