// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// leaves are the commands that do something.
func leaves(t *testing.T) (all []*cobra.Command) {
	t.Helper()
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if !c.HasSubCommands() && !c.Hidden {
			all = append(all, c)
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(Command())
	if len(all) < 50 {
		t.Fatalf("only %d commands", len(all))
	}
	return all
}

// Each command's help has an example of it. That examples parse is checked with those of the documentation.
func TestEveryCommandHasAnExample(t *testing.T) {
	for _, c := range leaves(t) {
		if example := exampleOf(c); !strings.HasPrefix(example, c.CommandPath()) {
			t.Errorf("%s has the example %q", c.CommandPath(), example)
		}
	}
}

// A mistake is answered with how to do it, and without asking the broker.
func TestEveryMistakeIsAnswered(t *testing.T) {
	for _, c := range leaves(t) {
		words := strings.Fields(c.CommandPath() + " --no-such-flag")[1:]
		code, stdout, stderr := runAt(t, "unix:///nowhere", words...)
		for _, want := range []string{"unknown flag: --no-such-flag", "Usage:   " + c.UseLine(), "Example: " + c.CommandPath(), "See " + c.CommandPath() + " --help."} {
			if code != exitUsage || stdout != "" || !strings.Contains(stderr, want) {
				t.Errorf("%v: exit %d, no %q in\n%s%s", words, code, want, stdout, stderr)
			}
		}
	}
	for line, want := range map[string]string{
		"job":                    "Example: kernelctl job list --me",
		"job shwo":               `has no command "shwo"`,
		"job show":               "Example: kernelctl job show 1234",
		"jobs":                   "Usage:   kernelctl COMMAND",
		"profile promote mitgcm": "Example: kernelctl profile promote mitgcm@3",
	} {
		if code, _, stderr := runAt(t, "unix:///nowhere", strings.Fields(line)...); code != exitUsage || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit %d, no %q in\n%s", line, code, want, stderr)
		}
	}
}

// For programs an error is an object, with the exit code's kind.
func TestErrorsAreObjects(t *testing.T) {
	f := newFixture(t)
	for line, want := range map[string]failure{
		"node show n3":   {Kind: "refused", ExitCode: exitRefused, Message: `node "n3"`},
		"job show x":     {Kind: "usage", ExitCode: exitUsage, Message: `"x" is not a job`, Usage: "kernelctl job show ID", Example: "kernelctl job show 1234"},
		"config check /": {Kind: "error", ExitCode: exitFailure, Message: "/"},
	} {
		_, stdout, stderr := f.run(append(strings.Fields(line), "-o", "json")...)
		var got struct{ Error failure }
		if err := json.Unmarshal([]byte(stderr), &got); err != nil || stdout != "" {
			t.Errorf("%s: %v\n%s%s", line, err, stdout, stderr)
		}
		e := got.Error
		if e.Kind != want.Kind || e.ExitCode != want.ExitCode || !strings.Contains(e.Message, want.Message) || !strings.HasPrefix(e.Usage, want.Usage) || e.Example != want.Example {
			t.Errorf("%s: %+v", line, e)
		}
	}
	if code, _, stderr := runAt(t, "unix:///nowhere", "health", "-o", "yaml"); code != exitUnavailable || !strings.HasPrefix(stderr, "error:\n  kind: unavailable\n") {
		t.Errorf("exit %d, %s", code, stderr)
	}
}

// What has no result says as an object what was done.
func TestMessagesAreObjects(t *testing.T) {
	f := newFixture(t)
	dir, kernels := invented(t)
	f.must(0, "", "profile", "apply", dir, "--kernels", kernels)
	var got struct{ Messages []string }
	out := f.must(0, "mitgcm@1 quarantined", "profile", "quarantine", "mitgcm@1", "--reason", "test", "-o", "json")
	if err := json.Unmarshal([]byte(out), &got); err != nil || len(got.Messages) != 1 || got.Messages[0] != "mitgcm@1 quarantined" {
		t.Errorf("%v: %s", err, out)
	}
}
