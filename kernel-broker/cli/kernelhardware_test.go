// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"testing"
)

// Wrong input ends before the source is looked for, and leaves what was written
// before.
func TestKernelHardwareRefuses(t *testing.T) {
	f := newFixture(t)
	folder := t.TempDir()
	report := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := report("good.json", `[{"node":"n1","drivers":["e1000e"]}]`)
	output := report("site.config", "before\n")
	for _, c := range []struct {
		code      int
		words     string
		arguments []string
	}{
		{2, "requires at least 1 arg", nil},
		{2, "profile name", []string{good, "--kernel", "No Recipe"}},
		{1, "no such file", []string{"nowhere.json"}},
		{1, "no node", []string{report("empty.json", "[]")}},
		{1, "unexpected EOF", []string{report("half.json", `[{"node":"n1"`)}},
		{1, `node "n1" reports twice`, []string{good, report("again.json", `[{"node":"n1","drivers":["igb"]}]`)}},
		{1, "no alias of a device", []string{good, "--aliases", good}},
		{1, `kernel "nothing": no such recipe`, []string{good, "--kernel", "nothing"}},
	} {
		arguments := []string{"kernel", "hardware", "--output-file", output, "--cache", folder, "--catalog", "../../catalog"}
		f.must(c.code, c.words, append(arguments, c.arguments...)...)
	}
	if text, err := os.ReadFile(output); err != nil || string(text) != "before\n" {
		t.Errorf("%s is now %q, %v", output, text, err)
	}
}
