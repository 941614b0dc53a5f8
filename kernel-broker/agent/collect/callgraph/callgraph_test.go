// SPDX-License-Identifier: Apache-2.0

package callgraph

import (
	"slices"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect/kallsyms"
	"github.com/kernelbroker/kernelbroker/tests/support/bpftest"
)

func TestLayouts(t *testing.T) {
	bpftest.Check(t, wanted, map[string]bpftest.Layout{
		"stacks":  {Key: uint32(0), Value: [deepest]uint64{}},
		"counts":  {Key: uint32(0), Value: uint64(0)},
		"samples": {Value: uint64(0)},
	})
}

// A call at a function's very end returns to the next one, and still belongs to
// the first.
func TestFramesNameTheCaller(t *testing.T) {
	symbols, err := kallsyms.Read(strings.NewReader("1000 T entry\n2000 T write\n3000 T copy\n"))
	if err != nil {
		t.Fatal(err)
	}
	s := &session{symbols: symbols}
	got := s.frames([]uint64{0x3000, 0x3000, 0x1010, 0, 0x2000})
	if want := []string{"entry", "write", "copy"}; !slices.Equal(got, want) {
		t.Errorf("frames are %v, want %v", got, want)
	}
}
