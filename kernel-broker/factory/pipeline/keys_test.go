// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/graph"
)

var update = flag.Bool("update", false, "write testdata anew")

// Sites keep results for months. A change here throws away every result of the
// steps whose keys differ, so that it has to be meant: write the file anew with
// -update, and say in the commit what will be done again.
func TestKeysStay(t *testing.T) {
	w := newWorld(t, nil)
	if _, _, err := w.build(); err != nil {
		t.Fatal(err)
	}
	status, err := StoreIn(w.dir).Status("fake", "")
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, step := range status.Steps {
		if step.State != graph.Done || step.Key == "" {
			t.Errorf("step %q: %s, key %q", step.Name, step.State, step.Key)
		}
		// Publication is an effect: it is done each time.
		if step.Name != StepPublish {
			lines = append(lines, step.Name+" "+step.Key+"\n")
		}
	}
	slices.Sort(lines)
	got := strings.Join(lines, "")
	path := filepath.Join("testdata", "keys.txt")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || got != string(want) {
		t.Errorf("keys of steps, %v; were\n%sand are\n%s", err, want, got)
	}
}
