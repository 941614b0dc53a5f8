// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"sync"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// Only what an administrator reboots, or what has no power, and no agent can, is
// left to the site's program, or to its reset.
func TestNoteReboot(t *testing.T) {
	for _, program := range []bool{true, false} {
		f := newFixture(t)
		var mu sync.Mutex
		var resets []string
		f.reset = func(node string) error {
			mu.Lock()
			defer mu.Unlock()
			resets = append(resets, node)
			return nil
		}
		f.start()
		f.attach("n1", "stock", "", bootOne)
		for _, name := range []string{"n1", "m1", "m2"} {
			f.slurm.node(name, "DOWN+DRAIN+REBOOT_ISSUED", "kernel update : reboot issued")
		}
		f.slurm.node("m3", "ALLOCATED+POWERING_UP", "")
		f.slurm.node("m4", "ALLOCATED+REBOOT_ISSUED+POWERING_UP", "")
		f.c.mu.Lock()
		f.c.records.nodes["m2"] = &kb.Node{Name: "m2", Armed: true}
		f.c.records.nodes["m4"] = &kb.Node{Name: "m4", Off: "its last boot"}
		f.c.mu.Unlock()
		others, err := f.c.NoteReboot(t.Context(), []string{"n1", "m1", "m2", "m3", "m4"}, program)
		if err != nil || !slices.Equal(others, []string{"m1", "m4"}) {
			t.Errorf("others %v, %v", others, err)
		}
		if program {
			continue
		}
		until(t, "a reset", func() bool {
			mu.Lock()
			defer mu.Unlock()
			slices.Sort(resets)
			return slices.Equal(resets, []string{"m1", "m4"})
		})
	}
}
