// SPDX-License-Identifier: Apache-2.0

package profiling

import (
	"slices"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// The advice and the check at registration speak of the same symbols.
func TestNoiseArgumentsAreThoseThatAreChecked(t *testing.T) {
	for _, a := range NoiseArguments() {
		if !slices.Equal(kb.HonouredBy(a.Name), []string{a.Symbol}) {
			t.Errorf("%s needs %s here, and %v at registration", a.Name, a.Symbol, kb.HonouredBy(a.Name))
		}
	}
	if lacks := Lacking(func(string) bool { return true }); lacks == nil || len(lacks) != 0 {
		t.Errorf("of a kernel with all: %#v", lacks)
	}
}
