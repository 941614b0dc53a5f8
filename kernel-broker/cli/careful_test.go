// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"strings"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

// answered runs kernelctl at a terminal where somebody gives an answer, and counts the questions.
func (f *fixture) answered(answer bool, arguments ...string) (code, asked int, stderr string) {
	f.t.Helper()
	var out, wrong bytes.Buffer
	code = Run(f.t.Context(), Invocation{
		Args: arguments, Stdout: &out, Stderr: &wrong, Version: "1.2.3",
		Getenv:  func(name string) string { return map[string]string{addressVariable: "unix://" + f.socket}[name] },
		Confirm: func(context.Context, string) bool { asked++; return answer },
	})
	return code, asked, wrong.String()
}

// On a terminal what destroys says what it would do, and asks; a no leaves everything as it was.
func TestDestroyingAsks(t *testing.T) {
	f := newFixture(t)
	dir, kernels := invented(t)
	f.must(0, "", "profile", "apply", dir, "--kernels", kernels)
	f.files.keep(make([]byte, 1<<20))
	f.hardware.rules = []kb.HardwareRule{{Name: "hangs", Board: "Dell*", Kexec: kb.KexecNever, By: kb.WayReset}}
	for line, would := range map[string]string{
		"artifact gc":                "would remove 5 files, 2.3 MiB",
		"profile retire mitgcm":      "would retire mitgcm@1",
		"hardware rule remove hangs": "would remove rule hangs, for board=Dell*",
	} {
		before := f.files.count()
		code, asked, stderr := f.answered(false, strings.Fields(line)...)
		if code != exitFailure || asked != 1 || !strings.Contains(stderr, would) || !strings.Contains(stderr, "nothing was changed") {
			t.Errorf("%s, no: exit %d, asked %d times\n%s", line, code, asked, stderr)
		}
		f.must(0, would, append(strings.Fields(line), "--dry-run")...)
		if f.files.count() != before || len(f.hardware.rules) != 1 || f.version(t, mitgcm1).Retired != nil {
			t.Fatalf("%s changed something", line)
		}
	}
	for _, line := range []string{"artifact gc --yes", "artifact gc --dry-run", "artifact gc -o json"} {
		if code, asked, stderr := f.answered(false, strings.Fields(line)...); code != 0 || asked > 0 {
			t.Errorf("%s: exit %d, asked %d times\n%s", line, code, asked, stderr)
		}
	}
	if code, asked, stderr := f.answered(true, "profile", "retire", "mitgcm"); code != 0 || asked != 1 || f.version(t, mitgcm1).Retired == nil {
		t.Errorf("yes: exit %d, asked %d times\n%s", code, asked, stderr)
	}
	if code, asked, _ := f.answered(true, "hardware", "rule", "remove", "none"); code != exitRefused || asked > 0 {
		t.Errorf("what is not there is asked for: exit %d, asked %d times", code, asked)
	}
}

// What each change would be is said, and is not done.
func TestDryRuns(t *testing.T) {
	f := newFixture(t)
	dir, kernels := invented(t)
	f.must(0, "", "profile", "apply", dir, "--kernels", kernels)
	f.runs.list = []*api.Run{{Id: 9, Application: "MITgcm", State: api.RunState_RUN_STATE_REQUESTED}, {Id: 8, Reference: "12", State: api.RunState_RUN_STATE_COMPLETE}}
	for _, c := range []struct {
		line  string
		code  int
		words string
	}{
		{"profile quarantine mitgcm@1 --reason x", 0, "would quarantine mitgcm@1"},
		{"profile quarantine mitgcm@2 --reason x", exitRefused, "has no version 2"},
		{"profile promote mitgcm@1 --reason x", 0, "is the default version already"},
		{"profile promote mitgcm@7 --reason x", exitRefused, "has no version 7"},
		{"run cancel 9", 0, "would cancel run 9, which waits for the next of MITgcm"},
		{"run cancel 8", exitRefused, "run 8 is complete"},
	} {
		f.must(c.code, c.words, append(strings.Fields(c.line), "--dry-run")...)
	}
	if f.version(t, mitgcm1).Quarantine != nil {
		t.Error("a dry run quarantines")
	}
}
