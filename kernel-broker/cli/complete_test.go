// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

// Tab offers what the broker has.
func TestCompletion(t *testing.T) {
	f := newFixture(t)
	f.nodes.list = []*api.Node{{Name: "n10"}, {Name: "n2"}, {Name: "evil\x1b[2J"}}
	f.jobs.list = someJobs()
	f.runs.list = []*api.Run{{Id: 9, Application: "MITgcm"}, {Id: 8, Reference: "12_1"}, {Id: 7}}
	dir, kernels := invented(t)
	f.must(0, "", "profile", "apply", dir, "--kernels", kernels)
	f.hardware.rules = []kb.HardwareRule{{Name: "hangs", Board: "Dell*", Kexec: kb.KexecNever, By: kb.WayReset}}
	for line, want := range map[string]string{
		"job show |":             "12_1 13 :",
		"job wait 1|":            "12_1 13 :",
		"job why 12|":            "12_1 :",
		"job show 13 |":          ":",
		"job wait 13 --for |":    "ready done :",
		"job list --state w|":    ":waiting",
		"node show |":            "n2 n10 :",
		"node show n1|":          "n10 :",
		"profile show |":         "mitgcm stock :",
		"profile promote mit|":   "mitgcm mitgcm@1 :",
		"run show |":             "9 8 7 :",
		"run diff 7 |":           "9 8 7 :",
		"policy test alice u|":   "use upload :",
		"hardware rule remove |": "hangs :",
		"health |":               ":",
	} {
		words := strings.Fields(strings.TrimSuffix(line, "|"))
		if strings.HasSuffix(line, " |") {
			words = append(words, "")
		}
		out := f.must(0, "", append([]string{"__complete"}, words...)...)
		var got []string
		for one := range strings.Lines(out) {
			one, _, _ = strings.Cut(strings.TrimSpace(one), "\t")
			got = append(got, one)
		}
		told := strings.Join(got[:len(got)-1], " ")
		if strings.TrimSpace(told+" :") != strings.TrimSpace(want) && want != ":"+told {
			t.Errorf("%s offers %q, want %q", line, told, want)
		}
		if last := got[len(got)-1]; last != ":36" && last != ":4" {
			t.Errorf("%s: the shell may offer files: %s", line, last)
		}
	}
}

// Without a broker Tab is silent.
func TestCompletionWithoutBroker(t *testing.T) {
	code, out, _ := runAt(t, "unix:///nowhere", "__complete", "node", "show", "")
	if code != 0 || out != ":4\n" {
		t.Errorf("exit %d: %q", code, out)
	}
}

// named are arguments that the broker, or this program, knows the words for.
var named = regexp.MustCompile(`^\[?(ID|JOB|RUN|NODES?|ACTION|APPLICATION)\b`)

// Each command that takes the name of something completes it.
func TestEveryNameIsCompleted(t *testing.T) {
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for _, word := range strings.Fields(c.Use)[1:] {
			if named.MatchString(word) && c.ValidArgsFunction == nil {
				t.Errorf("%s does not complete %s", c.CommandPath(), word)
			}
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(Command())
}
