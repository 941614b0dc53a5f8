// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// CI is green only where all that was asked for ran and passed.
func TestSummary(t *testing.T) {
	event := func(action, test string) string {
		return `{"Action":"` + action + `","Package":"p","Test":"` + test + `"}` + "\n"
	}
	passed := event("run", "TestA") + event("pass", "TestA")
	for name, c := range map[string]struct{ status, events, last string }{
		"all-passed":         {"0", passed, "2 passed, 0 failed, 0 skipped"},
		"one-failed":         {"1", passed + event("fail", "TestB"), "2 passed, 1 failed, 0 skipped"},
		"did-not-end":        {"1", passed + event("run", "TestB"), "2 passed, 1 failed, 0 skipped"},
		"did-not-compile":    {"1", passed + `{"Action":"fail","Package":"q"}` + "\n", "2 passed, 1 failed, 0 skipped"},
		"skip-not-allowed":   {"0", passed + event("skip", "TestB"), "2 passed, 0 failed, 1 skipped"},
		"skip-allowed":       {"0", passed + event("skip", "TestVictim"), "2 passed, 0 failed, 1 skipped"},
		"all-skipped":        {"0", event("skip", "TestVictim"), "1 passed, 1 failed, 1 skipped"},
		"nothing-ran":        {"0", "", "1 passed, 1 failed, 0 skipped"},
		"make-failed-itself": {"2", passed, "2 passed, 1 failed, 0 skipped"},
		"not-to-be-had":      {"0", "", "1 passed, 0 failed, 1 skipped"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			files := map[string]string{"unit.jsonl": c.events, "steps/lint.json": `{"step":"lint","status":0,"seconds":1}`}
			if name == "not-to-be-had" {
				files["steps/unit.json"] = `{"step":"unit","skipped":"sid has Slurm 27.05, not 26.05"}`
			}
			for file, text := range files {
				path := filepath.Join(dir, file)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.Command("../../.ci/summary", c.status, "unit", "lint")
			cmd.Env = append(os.Environ(), "RESULTS="+dir)
			out, err := cmd.CombinedOutput()
			lines := strings.Split(strings.TrimSpace(string(out)), "\n")
			if last := lines[len(lines)-1]; last != c.last {
				t.Errorf("the last line is %q, want %q", last, c.last)
			}
			if good := name == "all-passed" || name == "skip-allowed" || name == "not-to-be-had"; good != (err == nil) {
				t.Errorf("it ended with %v:\n%s", err, out)
			}
		})
	}
}
