// SPDX-License-Identifier: Apache-2.0

package profiling

import "testing"

func TestInodeKind(t *testing.T) {
	for number, want := range map[int]string{1: "pipe", 8: RegularFiles, 3: "type 3", -1: "type -1"} {
		if got := InodeKind(number); got != want {
			t.Errorf("kind %d is %q, not %q", number, got, want)
		}
	}
}
