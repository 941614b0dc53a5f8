// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/tune"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/verdict"
)

func TestTuneRefuses(t *testing.T) {
	f := newFixture(t)
	cache := t.TempDir()
	for words, arguments := range map[string][]string{
		"accepts 1 arg(s), received 0":              {},
		`--where "mars" is neither local nor slurm`: {"mitgcm", "--where", "mars"},
		"--budget: a time above 0":                  {"mitgcm", "--budget", "-1h"},
		"profile name \"MITgcm\"":                   {"MITgcm"},
	} {
		f.must(2, words, append([]string{"kernel", "tune", "--cache", cache}, arguments...)...)
	}
	f.must(1, `kernel "nothing": no such recipe`, "kernel", "tune", "nothing", "--cache", cache, "--catalog", "../../catalog")
	f.must(3, `kernel "slim": its recipe names no workload to measure by`, "kernel", "tune", "slim", "--cache", cache, "--catalog", "../../catalog")
	f.must(3, `proposal "tune-hz-1000": the catalog has none of that name in proposals.yaml`,
		"kernel", "tune", "mitgcm", "--only", "tune-hz-1000", "--cache", cache, "--catalog", "../../catalog")
	policy := filepath.Join(t.TempDir(), "factory.yaml")
	if err := os.WriteFile(policy, []byte("may_give_up: [speed]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.must(3, `may_give_up "speed" is none of security limits`, "kernel", "tune", "mitgcm", "--site", policy, "--cache", cache, "--catalog", "../../catalog")
}

func TestTunePage(t *testing.T) {
	text := func(o tune.Outcome) string {
		p := &page{}
		tunePage(p, o)
		p.flush()
		return p.text.String()
	}
	trials := []tune.Trial{
		{Proposal: tune.Proposal{Fragment: "tune-hz-100", Group: "tick-rate"}, Result: tune.Kept, Change: new(-0.0123), Reason: "exact counts, and fewer"},
		{Proposal: tune.Proposal{Fragment: "tune-no-zeroing", GivesUp: "security"}, Result: tune.NotAllowed, Reason: "gives up security"},
	}
	confirmed := &tune.Confirmation{Standing: verdict.Better, Change: -0.0111, Reason: "exact counts, and fewer"}
	for name, c := range map[string]struct {
		outcome tune.Outcome
		want    string
	}{
		"kept": {tune.Outcome{Kept: []string{"tune-hz-100"}, Overrides: []string{"cores", "tune-hz-100"}, Trials: trials, Change: -0.0123, Confirmed: confirmed},
			"-1.2 % with the training data, -1.1 % with the test data (better: exact counts, and fewer).\nFor the recipe's overrides: [cores, tune-hz-100]\n"},
		"not confirmed": {tune.Outcome{Kept: []string{"tune-hz-100"}, Trials: trials, Confirmed: &tune.Confirmation{Standing: verdict.Worse}}, "No benefit with data on which nothing was chosen"},
		"nothing kept":  {tune.Outcome{Trials: append([]tune.Trial{{Result: tune.NoGain, Change: new(0.01)}}, trials[1:]...)}, "\nNo benefit: the recipe stays as it is.\n"},
		"nothing tried": {tune.Outcome{Trials: append([]tune.Trial{{Result: tune.NotTried}}, trials[1:]...)},
			"\n1 proposals were not tried: the same command goes on with them.\n\nNothing was measured.\n"},
	} {
		got := text(c.outcome)
		if !strings.Contains(got, c.want) || !strings.Contains(got, "tune-no-zeroing") {
			t.Errorf("%s:\n%s", name, got)
		}
	}
}
