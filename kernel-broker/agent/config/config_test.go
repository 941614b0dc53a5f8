// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

const broker = "broker: b:7440\n"

// A node's file with nothing but the broker has the sample's values.
func TestSampleIsTheDefault(t *testing.T) {
	got, err := Read("agent.sample.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want, err := Parse("agent.yaml", []byte("broker: broker.example.org:7440\n"))
	want.Digest = got.Digest // of the file
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v, %v", got, want, err)
	}
	if !slices.Equal(want.Boot.KeepArguments, kb.NodeParameters()) {
		t.Errorf("boot.keep_arguments %q is not what the domain says belongs to a node", want.Boot.KeepArguments)
	}
	if want.Cache.MaxBytes != 2<<30 || want.BrokerGrace != 30*time.Second || want.Trust.Required() || want.Profiling.OverheadPercent != 4 || want.Profiling.MaxRuns != 4 {
		t.Errorf("defaults %+v", want)
	}
}

// The sample documents every key.
func TestSampleHasEveryKey(t *testing.T) {
	raw, err := os.ReadFile("agent.sample.yaml")
	if err != nil {
		t.Fatal(err)
	}
	all, err := yaml.Marshal(Config{})
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(all)) {
		key, _, _ := strings.Cut(strings.TrimSpace(line), ":")
		if !strings.Contains(string(raw), key+":") {
			t.Errorf("key %q is not in the sample", key)
		}
	}
}

func TestParse(t *testing.T) {
	c, err := Parse("agent.yaml", []byte(broker+"slurmd: {stop_timeout: 3s}\nboot: {keep_arguments: [root]}\n"))
	if err != nil || c.Slurmd.StopTimeout != 3*time.Second || len(c.Slurmd.Start) != 2 || len(c.Boot.KeepArguments) != 1 {
		t.Errorf("got %+v, %v", c, err)
	}
}

// Under systemd every start of slurmd goes through systemd: a slurmd started by the agent would run in the agent's unit.
// With a signed stock no file of the node counts: an empty list is no list.
func TestNoStockFiles(t *testing.T) {
	for text, want := range map[string]int{"trust: {list: /etc/t}\n": 2, "trust: {list: /etc/t, stock_files: []}\n": 0} {
		c, err := Parse("agent.yaml", []byte("node: n1\nbroker: b:1\n"+text))
		if err != nil || len(c.Trust.StockFiles) != want {
			t.Errorf("%s: %q, %v", text, c.Trust.StockFiles, err)
		}
	}
}

func TestFirstStartFollowsStart(t *testing.T) {
	for text, want := range map[string]string{
		"": "/usr/sbin/slurmd",
		"slurmd: {start: [systemctl, restart, slurmd]}\n":                                        "",
		"slurmd: {start: [/sbin/own, -b], first_start: [/sbin/own]}\n":                           "/sbin/own",
		"slurmd: {start: [systemctl, restart, slurmd], first_start: [systemctl, start, slurmd]}": "systemctl start slurmd",
	} {
		c, err := Parse("agent.yaml", []byte(broker+text))
		if err != nil || strings.Join(c.Slurmd.FirstStart, " ") != want {
			t.Errorf("%q: first start %q, %v", text, c.Slurmd.FirstStart, err)
		}
	}
	_, err := Parse("agent.yaml", []byte(broker+"slurmd: {start: [/usr/bin/systemctl, restart, slurmd], first_start: [/usr/sbin/slurmd]}\n"))
	if !errors.Is(err, kb.ErrInvalid) || !strings.Contains(err.Error(), "slurmd.first_start") {
		t.Errorf("a slurmd beside its unit: %v", err)
	}
}

func TestParseRefuses(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"unknown key":    {broker + "slurmd:\n  strat: [x]\n", `agent.yaml: line 3: unknown key "strat"`},
		"wrong type":     {broker + "cache: {max_bytes: much}\n", "line 2"},
		"two documents":  {broker + "---\ntls: {mode: files}\n", "more than one document"},
		"no broker":      {"", "broker"},
		"no port":        {"broker: b\n", "HOST:PORT"},
		"odd node":       {broker + "node: a b\n", "node"},
		"relative path":  {broker + "socket: agent.sock\n", "socket"},
		"relative image": {broker + "boot: {initrd: x}\n", "boot.initrd"},
		"no command":     {broker + "slurmd: {start: []}\n", "slurmd.start"},
		"no time":        {broker + "broker_grace: 0s\n", "broker_grace"},
		"who signs":      {broker + "tls: {mode: off}\n", "tls.mode"},
		"relative key":   {broker + "tls: {key: k}\n", "tls.key"},
		"tiny cache":     {broker + "cache: {max_bytes: 5}\n", "max_bytes"},
		"tiny budget":    {broker + "profiling: {overhead_percent: 0.04}\n", "overhead_percent"},
		"no runs":        {broker + "profiling: {max_runs: 0}\n", "profiling.max_runs: 0 is less than 1"},
		"negative":       {broker + "profiling: {overhead_percent: -1}\n", "overhead_percent"},
		"no number":      {broker + "profiling: {overhead_percent: .nan}\n", "overhead_percent"},
		"any overhead":   {broker + "profiling: {overhead_percent: 51}\n", "overhead_percent"},
	} {
		_, err := Parse("agent.yaml", []byte(c.text))
		if !errors.Is(err, kb.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
