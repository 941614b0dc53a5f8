// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

// The exit code tells a mistake on the command line from work that failed.
func TestExitCodes(t *testing.T) {
	for _, c := range []struct {
		args []string
		want int
	}{
		{nil, 2},
		{[]string{"x"}, 2},
		{[]string{"x", "--out", "y", "--jobs", "0"}, 2},
		{[]string{"x", "--out", "y", "--wall", "5"}, 2},
		{[]string{"x", "--out", "y", "--wall", "2"}, 2},
		{[]string{"x", "--out", "y", "--wall", "4", "--parallel", "2"}, 2},
		{[]string{"nothing", "--out", t.TempDir(), "--wall", "4", "--catalog", t.TempDir()}, 1},
		{[]string{"--help"}, 0},
	} {
		if got := run(t.Context(), c.args); got != c.want {
			t.Errorf("%v: exit %d, want %d", c.args, got, c.want)
		}
	}
}
