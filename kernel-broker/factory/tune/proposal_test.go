// SPDX-License-Identifier: Apache-2.0

package tune

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/kconfig"
)

const catalog = "../../../catalog"

// Proposals of one group exclude each other; all others may meet in one kernel, and
// so must not contradict each other.
func TestProposalsOfTheCatalog(t *testing.T) {
	proposals, err := Load(catalog)
	if err != nil {
		t.Fatal(err)
	}
	fragments := map[string]kconfig.Fragment{}
	for _, p := range proposals {
		if fragments[p.Fragment], err = kconfig.ReadFragment(filepath.Join(catalog, "fragments", p.Fragment+".config")); err != nil {
			t.Error(err)
		}
	}
	files, err := filepath.Glob(filepath.Join(catalog, "fragments", "tune-*.config"))
	if err != nil || len(files) != len(proposals) {
		t.Errorf("%d fragments to propose, %d proposals, %v", len(files), len(proposals), err)
	}
	for i, a := range proposals {
		for _, b := range proposals[:i] {
			if a.Group != "" && a.Group == b.Group {
				continue
			}
			if _, err := kconfig.Merge([]kconfig.Fragment{fragments[a.Fragment], fragments[b.Fragment]}); err != nil {
				t.Errorf("%s and %s: %v", a.Fragment, b.Fragment, err)
			}
		}
	}
}

func TestParseRefuses(t *testing.T) {
	const good = "proposals:\n- fragment: a\n  title: A\n"
	if got, err := Parse("p.yaml", []byte(good)); err != nil || len(got) != 1 {
		t.Fatalf("%v, %v", got, err)
	}
	for text, words := range map[string]string{
		"proposals: []":                                         `p.yaml: key "proposals": none`,
		good + "- fragment: a\n  title: B\n":                    `p.yaml: line 4: key "fragment" of proposal "a": is there twice`,
		good + "- fragment: B!\n  title: B\n":                   `p.yaml: line 4: key "fragment" of proposal "B!"`,
		good + "- fragment: b\n  title: B\n  gives_up: speed\n": `p.yaml: line 6: key "gives_up" of proposal "b": "speed" is none of security limits accounting diagnosis hardware`,
		good + "- fragment: b\n  title: B\n  group: a b\n":      `p.yaml: line 6: key "group" of proposal "b": "a b" is not a word`,
		good + "- fragment: b\n":                                `p.yaml: line 4: key "title" of proposal "b": is not a line`,
		good + "- fragment: b\n  title: B\n  options: [A]\n":    `p.yaml: line 6: unknown key`,
	} {
		if _, err := Parse("p.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%q: %v, want %q", text, err, words)
		}
	}
}
