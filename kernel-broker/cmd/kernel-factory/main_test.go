// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"
)

// The exit code tells a mistake on the command line from work that failed.
func TestExitCodes(t *testing.T) {
	plan := filepath.Join(t.TempDir(), "plan.json")
	if err := os.WriteFile(plan, []byte(`{"nam":"x"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want int
	}{
		{nil, 2},
		{[]string{"foo"}, 2},
		{[]string{"step"}, 2},
		{[]string{"step", "task"}, 2},
		{[]string{"build", "--kernel", "x", "--out", "y", "--jobs", "0"}, 2},
		{[]string{"step", "--plan", "/nowhere", "task"}, 1},
		{[]string{"step", "--plan", plan, "task"}, 1},
		{[]string{"build", "--kernel", "nothing", "--catalog", t.TempDir(), "--out", t.TempDir()}, 1},
		{[]string{"--help"}, 0},
	} {
		if got := run(t.Context(), c.args); got != c.want {
			t.Errorf("%v: exit %d, want %d", c.args, got, c.want)
		}
	}
}
