// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// hardware is the broker's ledger, in memory.
type hardware struct {
	rows  []*kb.LedgerRow
	rules []kb.HardwareRule
}

func (h *hardware) Hardware() ([]*kb.LedgerRow, []kb.HardwareRule) { return h.rows, h.rules }

func (h *hardware) SetHardwareRule(_ context.Context, rule kb.HardwareRule) (kb.HardwareRule, error) {
	rule.At, rule.Author = noon, "root"
	h.rules = append(h.rules, rule)
	return rule, rule.Validate()
}

func (h *hardware) RemoveHardwareRule(_ context.Context, name string) error {
	left := slices.DeleteFunc(slices.Clone(h.rules), func(r kb.HardwareRule) bool { return r.Name == name })
	if len(left) == len(h.rules) {
		return fmt.Errorf("rule %q: %w", name, kb.ErrNotFound)
	}
	h.rules = left
	return nil
}

func TestHardwareList(t *testing.T) {
	f := newFixture(t)
	if _, _, stderr := f.run("hardware", "list"); !strings.Contains(stderr, "no boots yet") {
		t.Errorf("an empty ledger: %q", stderr)
	}
	dell := kb.Hardware{Board: "Dell-Inc.-PowerEdge-R640", Firmware: "2.10.2", NIC: "mlx4_core@15b3:1003"}
	try := kb.Try{Node: "n1", Hardware: dell, Kernel: kb.Ref{Profile: "mitgcm", Version: 3}, Way: kb.WaySwitch, OK: true, At: noon}
	row := try.Row()
	for i := range 20 {
		try.Times = kb.BootTimes{Load: time.Second, Stop: 100 * time.Millisecond, Shutdown: time.Duration(i) * time.Second, Start: 4 * time.Second}
		row.Add(try)
	}
	try.OK, try.Cause, try.Node = false, "no sign of life 2m0s after the kexec", "n2"
	row.Add(try)
	unknown := kb.Try{Node: "n3", Kernel: kb.Ref{Profile: "mitgcm", Version: 3}, Way: kb.WayReset, OK: true, At: noon, Times: kb.UnknownTimes()}
	other := unknown.Row()
	other.Add(unknown)
	f.hardware.rows = []*kb.LedgerRow{other, row}
	f.must(0, "", "hardware", "rule", "set", "hangs", "--board", "Dell*R640", "--network", "mlx4*", "--kexec", "never", "--by", "reset", "--reason", "hangs in shutdown")
	f.must(0, "", "hardware", "rule", "set", "skip-n1", "--node", "n1", "--once")
	for _, format := range []string{"table", "json", "yaml"} {
		golden(t, "hardware-list."+format, f.must(0, "", "hardware", "list", "-o", format))
	}
	f.must(0, "", "hardware", "rule", "remove", "skip-n1")
	golden(t, "hardware-rules.table", f.must(0, "", "hardware", "rule", "list"))
}

func TestHardwareRuleRefuses(t *testing.T) {
	f := newFixture(t)
	for _, c := range []struct {
		code int
		args []string
		want string
	}{
		{2, []string{"set", "x"}, "names no node, board"},
		{2, []string{"set", "x", "--board", "a b"}, "pattern"},
		{2, []string{"set", "x", "--board", "*", "--kexec", "sometimes"}, "neither never nor no-return"},
		{2, []string{"set", "x", "--board", "*", "--by", "hand"}, "neither by reboot nor by reset"},
		{2, []string{"set", "x", "--board", "*", "--once"}, "needs a node"},
		{3, []string{"remove", "x"}, "not found"},
	} {
		code, _, stderr := f.run(append([]string{"hardware", "rule"}, c.args...)...)
		if code != c.code || !strings.Contains(stderr, c.want) || len(f.hardware.rules) > 0 {
			t.Errorf("%v: exit %d, %q", c.args, code, stderr)
		}
	}
}
