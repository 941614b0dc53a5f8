// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// All options that a kernel lacks are named at once.
func TestLackingOptions(t *testing.T) {
	root := t.TempDir()
	var all []string
	for _, trace := range traces {
		all = append(all, trace.options)
	}
	if got := lacking(root); !slices.Equal(got, all) {
		t.Errorf("a kernel with nothing lacks %q", got)
	}
	for i, trace := range traces {
		path := filepath.Join(root, trace.file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if got := lacking(root); !slices.Equal(got, all[i+1:]) {
			t.Errorf("with %s it lacks %q", trace.options, got)
		}
	}
	text := remedy("CONFIG_A", "CONFIG_B")
	for _, word := range []string{"fragment profiling", "docs/ops/profiling.md", "without CONFIG_A, CONFIG_B"} {
		if !strings.Contains(text, word) {
			t.Errorf("remedy %q does not name %q", text, word)
		}
	}
}
