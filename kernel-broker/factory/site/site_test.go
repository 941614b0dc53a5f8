// SPDX-License-Identifier: Apache-2.0

package site

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

func TestLoad(t *testing.T) {
	text, err := os.ReadFile("factory.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if s, err := Parse("sample", text); err != nil || s.Mitigations != Stock || len(s.MayGiveUp) > 0 {
		t.Errorf("the sample is %+v, not the default: %v", s, err)
	}
	path := filepath.Join(t.TempDir(), "factory.yaml")
	if _, err := Load(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that was named and is not there: %v", err)
	}
	if err := os.WriteFile(path, []byte("mitigations: any\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if s, err := Load(path); err != nil || s.Mitigations != Any {
		t.Errorf("%+v, %v", s, err)
	}
	for text, words := range map[string]string{
		"# kept\nmitigations: off":            `x.yaml: line 2: mitigations "off" is neither stock nor any`,
		"mitigation: any":                     `x.yaml: line 1: unknown key "mitigation"`,
		"mitigations: [any]":                  "x.yaml: line 1: cannot unmarshal",
		"may_give_up:\n  - limits\n  - speed": `x.yaml: line 3: may_give_up "speed" is none of security limits accounting diagnosis hardware`,
	} {
		if _, err := Parse("x.yaml", []byte(text)); !errors.Is(err, kb.ErrInvalid) || !strings.Contains(err.Error(), words) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestAllow(t *testing.T) {
	for argument, allowed := range map[string]bool{
		"nohz_full=1-3": true, "mitigations=auto": true, "spectre_v2=on": true, "l1tf=full,force": true, "mds=full,nosmt": true, "l1tf=flush": true, "tsx=off": true, "options=off": true,
		"mitigations=off": false, "mitigations": false, "nopti": false, "pti=off": false, "nospectre_v2": false, "nospectre-v2": false, "nopti=on": false,
		"spec-store-bypass-disable=prctl": false, "tsx_async_abort=off": false, "retbleed=off": false, "spectre_v2=retpoline,generic": false,
	} {
		err := Default().Allow([]string{"quiet", argument})
		if allowed != (err == nil) || err != nil && (!errors.Is(err, kb.ErrFailedPrecondition) || !strings.HasPrefix(err.Error(), argument+": ")) {
			t.Errorf("%s: %v", argument, err)
		}
		if err := (Site{Mitigations: Any}).Allow([]string{argument}); err != nil {
			t.Errorf("%s, where the site leaves it: %v", argument, err)
		}
	}
}
