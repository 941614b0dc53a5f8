// SPDX-License-Identifier: Apache-2.0

// Package bpftest checks Go's layouts against those of the compiled programs: both sides exchange bytes, so a field
// added on one side only would corrupt figures.
package bpftest

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect/bpf"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
)

// Layout is the Go side of one map; nil for a plain number.
type Layout struct{ Key, Value any }

// Check compares sizes of keys and values, and that optional parts name existing programs.
func Check(t *testing.T, w bpf.Wanted, maps map[string]Layout) {
	t.Helper()
	spec, err := w.Spec()
	var lack *profiling.Unsupported
	if errors.As(err, &lack) && lack.Reason == profiling.NoPrograms {
		t.Skip("no compiled programs: make build-go")
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, layout := range maps {
		m := spec.Maps[name]
		if m == nil {
			t.Errorf("no map %q", name)
			continue
		}
		for what, side := range map[string]struct {
			goes any
			is   uint32
		}{"key": {layout.Key, m.KeySize}, "value": {layout.Value, m.ValueSize}} {
			if side.goes == nil {
				continue
			}
			if size := binary.Size(side.goes); size != int(side.is) {
				t.Errorf("map %q: %s of %d bytes in Go, %d in the kernel", name, what, size, side.is)
			}
		}
	}
	for name := range w.Parts {
		if spec.Programs[name] == nil {
			t.Errorf("part %q: no program %q", w.Parts[name], name)
		}
	}
}
