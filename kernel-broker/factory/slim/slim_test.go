// SPDX-License-Identifier: Apache-2.0

package slim

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/kconfig"
)

var update = flag.Bool("update", false, "write the golden files anew")

// bench is a factory that builds nothing: kconfig is the prediction, with
// what stubborn says on top, and a kernel breaks as the machine says.
type bench struct {
	kconfig  *kconfig.Tree
	asked    map[string]bool
	stubborn string
	machine  machine
	tried    [][]string
}

func (b *bench) Configure(_ context.Context, off []string) (kconfig.Config, error) {
	after := b.kconfig.Without(treeConfig, off, b.kconfig.Calibrated(treeConfig, b.asked))
	if b.stubborn != "" {
		after[b.stubborn] = "y"
	}
	return after, nil
}

func (b *bench) Try(ctx context.Context, off []string) (Answer, error) {
	b.tried = append(b.tried, slices.Clone(off))
	return b.machine.ask(ctx, off)
}

// coldTree is a run in which only what its name says ran.
func coldTree(t *testing.T, hot ...string) Facts {
	kbuild, options := readTree(t)
	uses := Uses{}
	for object := range kbuild.Objects {
		if built, _ := kbuild.Built(object, treeConfig); !built {
			continue
		}
		use := Use{Object: object, Coverage: Cold, Text: 1000 + uint64(len(object))}
		if slices.Contains(hot, object) {
			use.Coverage, use.Ran = Hot, 10
		}
		uses[object] = use
	}
	return Facts{
		Config: treeConfig, Kbuild: kbuild, Kconfig: options, Uses: uses,
		Keep: Keep{"PCI": "firmware and buses (keep-list boot)"},
	}
}

func slimTree(t *testing.T, facts Facts, b *bench) (Outcome, error) {
	t.Helper()
	b.kconfig, b.asked = facts.Kconfig, facts.Asked
	return Slim(context.Background(), Input{
		Name: "small", Facts: facts, Kernels: b, Answers: Answers(t.TempDir()),
		TextBefore: 1000, Log: slog.New(slog.DiscardHandler),
	})
}

func symbols(decisions []Decision) string {
	var names []string
	for _, decision := range decisions {
		names = append(names, decision.Symbol)
	}
	return strings.Join(names, " ")
}

func reason(t *testing.T, outcome Outcome, symbol string) string {
	t.Helper()
	for _, decision := range outcome.Decisions() {
		if decision.Symbol == symbol {
			return decision.Reason
		}
	}
	t.Fatalf("nothing about %s", symbol)
	return ""
}

func TestSlim(t *testing.T) {
	for name, test := range map[string]struct {
		hot      string
		machine  machine
		stubborn string
		gone     string
		reasons  map[string]string
	}{
		"all cold": {
			gone: "AIO BLOCK DIAG NET PCI_MMCONFIG TCP TCP_CUBIC",
			reasons: map[string]string{
				"AIO": "1 object, 1012 bytes of code: none of it ran", "TCP_DIAG": "goes with NET",
				"PCI": "kept: firmware and buses (keep-list boot)", "FAST": "one of a choice: it can be traded for another, not left out",
			},
		},
		"a used part keeps what it depends on": {
			hot:  "net/tcp/cubic.o",
			gone: "AIO BLOCK DIAG PCI_MMCONFIG",
			reasons: map[string]string{
				"TCP": "net/tcp/cubic.o ran: 10 of 1015 bytes", "NET": "net/tcp/cubic.o ran: 10 of 1015 bytes",
				"EXPERT": "no object of its own: a trace cannot say whether it is used",
			},
		},
		"kconfig has the last word": {
			stubborn: "AIO",
			gone:     "BLOCK DIAG NET PCI_MMCONFIG TCP TCP_CUBIC",
			reasons:  map[string]string{"AIO": "without it the configuration fails: AIO is switched on again by kconfig"},
		},
		"the one to blame stays, and what carries it": {
			machine: machine{breaks: [][]string{{"TCP_CUBIC"}}},
			gone:    "AIO BLOCK DIAG PCI_MMCONFIG",
			reasons: map[string]string{
				"TCP_CUBIC": "without it the boot fails: without TCP_CUBIC",
				"TCP":       "TCP_CUBIC, which has to stay, cannot stay without it",
				"NET":       "TCP, which has to stay, cannot stay without it",
			},
		},
		"two that fail only together": {
			machine: machine{breaks: [][]string{{"AIO", "BLOCK"}}},
			gone:    "BLOCK DIAG NET PCI_MMCONFIG TCP TCP_CUBIC",
			reasons: map[string]string{"AIO": "without it the boot fails: without AIO and BLOCK"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := &bench{machine: test.machine, stubborn: test.stubborn}
			outcome, err := slimTree(t, coldTree(t, strings.Fields(test.hot)...), b)
			if err != nil {
				t.Fatal(err)
			}
			if got := symbols(outcome.Gone); got != test.gone {
				t.Errorf("gone %s, want %s", got, test.gone)
			}
			for symbol, want := range test.reasons {
				if got := reason(t, outcome, symbol); got != want {
					t.Errorf("%s: %q, want %q", symbol, got, want)
				}
			}
			last := b.tried[len(b.tried)-1]
			if !slices.ContainsFunc(b.tried, func(off []string) bool { return len(off) == len(outcome.Gone) }) {
				t.Errorf("what went was never tried as a whole; last %v", last)
			}
			checkFragment(t, outcome)
		})
	}
}

// checkFragment reads the fragment as the factory does, and lays it over the
// configuration.
func checkFragment(t *testing.T, outcome Outcome) {
	t.Helper()
	fragment, err := kconfig.ParseFragment("slim.config", outcome.Fragment())
	if err != nil {
		t.Fatalf("%v in\n%s", err, outcome.Fragment())
	}
	merged, err := kconfig.Merge([]kconfig.Fragment{fragment})
	if err != nil {
		t.Fatal(err)
	}
	after := maps.Clone(outcome.Config)
	if err := kconfig.CheckSurvival(merged, after, nil); err != nil {
		t.Error(err)
	}
	for symbol := range treeConfig {
		lost := treeConfig.On(symbol) && !outcome.Config.On(symbol)
		settable := slices.ContainsFunc(outcome.Decisions(), func(d Decision) bool { return d.Symbol == symbol })
		if settable && lost != merged.Sets(symbol) {
			t.Errorf("%s: lost %v, in the fragment %v", symbol, lost, merged.Sets(symbol))
		}
	}
}

func TestFragmentIsReadable(t *testing.T) {
	facts := coldTree(t)
	facts.Asked = map[string]bool{"HELPER_TABLE": true}
	outcome, err := slimTree(t, facts, &bench{machine: machine{breaks: [][]string{{"BLOCK"}}}})
	if err != nil {
		t.Fatal(err)
	}
	const golden = "testdata/small.config"
	got := outcome.Fragment()
	if *update {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for line := range strings.Lines(string(got)) {
		if len(line) > width+1 {
			t.Errorf("a line of %d: %s", len(line)-1, line)
		}
	}
}

// TestNothingToSlim has every option to blame.
func TestNothingToSlim(t *testing.T) {
	facts := coldTree(t)
	b := &bench{}
	for symbol := range treeConfig {
		b.machine.breaks = append(b.machine.breaks, []string{symbol})
	}
	outcome, err := slimTree(t, facts, b)
	if err != nil {
		t.Fatal(err)
	}
	if len(outcome.Gone) > 0 || outcome.Proposed == 0 || outcome.TextAfter != outcome.TextBefore {
		t.Errorf("%+v", outcome)
	}
	fragment, err := kconfig.ParseFragment("slim.config", outcome.Fragment())
	if err != nil || len(fragment.Options) != 1 || fragment.Options[0].Symbol != mapOption {
		t.Errorf("%v, %v", fragment.Options, err)
	}
}

// TestSlimBlamesNobodyForAFullDisk ends a search by an error in its second
// kernel: that is no answer, and nothing is decided by it.
func TestSlimBlamesNobodyForAFullDisk(t *testing.T) {
	b := &bench{machine: machine{stopAfter: 1, breaks: [][]string{{"AIO"}}}}
	outcome, err := slimTree(t, coldTree(t), b)
	if !errors.Is(err, errStopped) || !strings.HasPrefix(err.Error(), `slimming of "small": `) {
		t.Errorf("error %v", err)
	}
	if len(outcome.Gone)+len(outcome.Stayed) > 0 {
		t.Errorf("decided all the same: %+v", outcome)
	}
}
