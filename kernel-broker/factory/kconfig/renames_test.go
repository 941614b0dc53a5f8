// SPDX-License-Identifier: Apache-2.0

package kconfig

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestRenamedOptions(t *testing.T) {
	renames, err := ParseRenames("renames/6.12.yaml", []byte("renamed:\n  RETPOLINE: MITIGATION_RETPOLINE\ngone: [BASE_FULL]\n"))
	if err != nil {
		t.Fatal(err)
	}
	got := renames.Fragment(mustFragment(t, "f", "# r\nCONFIG_BASE_FULL=y\nCONFIG_KEPT=y\nCONFIG_RETPOLINE=y\n"))
	merged, err := Merge([]Fragment{got})
	if err != nil || merged.Text() != "CONFIG_KEPT=y\nCONFIG_MITIGATION_RETPOLINE=y\n" {
		t.Errorf("got\n%s\n%v", merged.Text(), err)
	}
	if where := merged.Options[1].Where(); where != "f:4" {
		t.Errorf("the renamed option stands at %s, want its line in the fragment, f:4", where)
	}
	if none, err := ReadRenames(filepath.Join(t.TempDir(), "6.1.yaml")); err != nil || len(none.Fragment(got).Options) != 2 {
		t.Errorf("without a file: %+v, %v", none, err)
	}
}

func TestRenamesRefused(t *testing.T) {
	for text, words := range map[string]string{
		"renamed:\n  A: B\nold: [C]\n":       "old",
		"renamed:\n  A: B-C\n":               `line 2: CONFIG_B-C: character '-'`,
		"renamed:\n  A: \"\"\n":              "line 2: CONFIG_ without a name",
		"renamed:\n  A: B\ngone: [A]\n":      "line 2: CONFIG_A is renamed and gone",
		"gone:\n  - A\n  - CONFIG_B C\n":     "line 3: CONFIG_CONFIG_B C: character ' '",
		"renamed:\n  A: B\nrenamed:\n  C: D": "renamed",
	} {
		if _, err := ParseRenames("r.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), words) || !strings.Contains(err.Error(), "r.yaml") {
			t.Errorf("%q: %v, want %q", text, err, words)
		}
	}
}
