// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/plan"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/server"
)

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "broker.yaml")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// The sample names every option and holds every default.
func TestSampleIsTheDefaults(t *testing.T) {
	c, err := load("broker.sample.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want := defaults()
	want.path, want.digest = c.path, c.digest
	want.Etcd.Endpoints, want.Administrators, want.ResetCommand = []string{}, []string{}, []string{}
	want.Slurm.Controllers = []string{}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("the sample gives\n%+v\nthe defaults are\n%+v", c, want)
	}
	text, err := os.ReadFile("broker.sample.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys(reflect.TypeOf(c)) {
		if !bytes.Contains(text, []byte("\n"+key+":")) && !bytes.Contains(text, []byte("\n  "+key+":")) {
			t.Errorf("the sample does not name %q", key)
		}
	}
	if _, err := load(write(t, "")); err != nil {
		t.Errorf("an empty file: %v", err)
	}
}

func TestBrokersTogether(t *testing.T) {
	for text, words := range map[string]string{
		"slurm: {controllers: [10.1.0.1, 10.2.0.0/24, 'fd00::1']}": "",
		"slurm: {controllers: [ctl2]}":                             `slurm.controllers: "ctl2" is neither an address nor a network`,
		"slurm: {controllers: [10.2.0.1/24]}":                      "neither an address nor a network",
		"slurm: {controllers: [10.1.0.1]}\nmunge: {socket: ''}":    "munge.socket is empty",
	} {
		_, err := load(write(t, text))
		if words == "" && err != nil || words != "" && (err == nil || !strings.Contains(err.Error(), words)) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// A broker that waits for another one would not take over with what it lacks, and says so before it waits.
func TestLooksBeforeItWaits(t *testing.T) {
	ready := func() config {
		c := defaults()
		c.DataDir, c.Slurm.User, c.Policy = t.TempDir(), "root", ""
		c.Etcd.Endpoints = []string{"https://127.0.0.1:1"}
		return c
	}
	for words, change := range map[string]func(*config){
		"data folder":        func(c *config) { c.DataDir = write(t, "") },
		`user "nobody-here"`: func(c *config) { c.Slurm.User = "nobody-here" },
		"open /none.pem":     func(c *config) { c.Etcd.CA = "/none.pem" },
	} {
		c := ready()
		change(&c)
		if err := run(t.Context(), c, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v", words, err)
		}
	}
}

func keys(of reflect.Type) []string {
	var names []string
	for i := range of.NumField() {
		f := of.Field(i)
		key := f.Tag.Get("yaml")
		if !f.IsExported() || f.Type.Kind() == reflect.Interface || f.Type.Kind() == reflect.Pointer || key == "-" {
			continue // ignored, or a former name
		}
		if key != ",inline" {
			names = append(names, key)
		}
		if f.Type.Kind() == reflect.Struct {
			names = append(names, keys(f.Type)...)
		}
	}
	return names
}

func TestDefaultsReachThePlan(t *testing.T) {
	want := plan.Defaults()
	want.ActiveFeatures = true
	if got := defaults().plan(); got != want {
		t.Errorf("plan %+v, want %+v", got, want)
	}
	c, err := load(write(t, "reset_command: [/bin/bmc, '{node}']\nswitch:\n  limit: 3m\n  stock_attempts: 5\n"))
	if err != nil {
		t.Fatal(err)
	}
	want.CanReset, want.SwitchLimit, want.StockAttempts = true, 3*time.Minute, 5
	if got := c.plan(); got != want {
		t.Errorf("plan %+v, want %+v", got, want)
	}
}

func TestBadConfigurations(t *testing.T) {
	for text, words := range map[string]string{
		"cluster: a\nclutser: b\n":                "line 2: unknown key \"clutser\"",
		"slurm:\n  conf: x\n  bindir: /usr/bin\n": "line 3: unknown key \"bindir\"",
		"switch: 12\n":                            "line 1",
		"cluster: a\ncluster: b\n":                "already defined",
		"cluster: ''\n":                           "cluster: is empty",
		"data_dir: ''\n":                          "data_dir: is empty",
		"slurm:\n  limit: 0s\n":                   "slurm.limit: 0s is too short",
		"slurm:\n  poll_busy: -1s\n":              "slurm.poll_busy: -1s is too short",
		"switch:\n  limit: forever\n":             "line 2",
		"switch:\n  stock_attempts: 0\n":          "switch.stock_attempts",
		"switch:\n  register_delay: -1s\n":        "switch.register_delay: -1s",
		"quarantine_after: 0\n":                   "quarantine_after",
		"quarantine_after: -1\n":                  "line 1",
		"limits:\n  user_rate: 0\n":               "user_rate",
		"limits:\n  user_rate: .nan\n":            "user_rate",
		"limits:\n  unauthenticated: 20000\n":     "unauthenticated: 20000",
		"limits:\n  guests: 20000\n":              "unauthenticated: 20000",
		"limits:\n  peer_connections: 0\n":        "peer_connections",
		"limits:\n  message_bytes: 1\n":           "message_bytes: 1",
		"limits:\n  backlog_bytes: 1\n":           "backlog_bytes: 1",
		"limits:\n  user_calls: 0\n":              "user_calls",
		"switch:\n  at_once: 0\n":                 "switch.at_once",
		"keep_jobs: 0\n":                          "keep_jobs",
		"max_artifact_bytes: 0\n":                 "max_artifact_bytes",
		"tls:\n  mode: off\n":                     "tls.mode",
		"cluster: Big\n":                          "cluster name",
		"tls:\n  lifetime: 1s\n":                  "tls.lifetime",
		"tls:\n  mode: site\n  key: /k\n":         "tls.certificate",
		"tls:\n  dir: ca\n":                       "tls.dir",
		"log_level: loud\n":                       "log_level",
		"reset_command: [bmc, reset]\n":           "reset_command",
		"cluster: a\n---\ncluster: b\n":           "more than one document",
		"\tcluster: a\n":                          "cannot start any token",
	} {
		if c, err := load(write(t, text)); err == nil || !strings.Contains(err.Error(), words) || !strings.Contains(err.Error(), "broker.yaml") {
			t.Errorf("%q gives %v (%+v), want %q", text, err, c, words)
		}
	}
	if _, err := load(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

// A process that may have few files takes few connections, and leaves some files
// for what is none.
func TestConnectionsFitTheFiles(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	for _, files := range []uint64{reservedFiles + 2, 4096, 20_000, 21_504, 1 << 20} {
		l := within(server.DefaultLimits(), files, quiet)
		if l.Validate() != nil || uint64(l.Connections+l.Unauthenticated)+reservedFiles > files {
			t.Errorf("of %d files: %d connections and %d guests, %v", files, l.Connections, l.Unauthenticated, l.Validate())
		}
		if files >= 21_504 && l != server.DefaultLimits() {
			t.Errorf("%d files are enough, and %+v", files, l)
		}
	}
}

func run1(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := command()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

// Wrong usage and a bad configuration are told apart from what fails at run
// time: the exit code says so.
func TestUsageErrors(t *testing.T) {
	good := write(t, "cluster: a\n")
	if out, err := run1(t, "--config", good, "--check"); err != nil || !strings.Contains(out, "is valid") {
		t.Errorf("%q, %v", out, err)
	}
	for _, args := range [][]string{{"--no-such-flag"}, {"--config", write(t, "x: 1\n")}, {"--config", good + ".none"},
		{"--config", write(t, "log_level: loud\n"), "--check"}, {"--config", good, "--check", "surplus"}} {
		_, err := run1(t, args...)
		var usage usageError
		if !errors.As(err, &usage) {
			t.Errorf("%q gives %v", args, err)
		}
	}
}

// Keys that have another name now are still read.
func TestFormerKeys(t *testing.T) {
	c, err := load(write(t, "limits:\n  stranger_rate: 3\n  stranger_burst: 7\n  guests: 11\n"))
	if err != nil || c.Limits.AddressRate != 3 || c.Limits.AddressBurst != 7 || c.Limits.Unauthenticated != 11 {
		t.Fatalf("%+v, %v", c.Limits, err)
	}
}

// A file of an earlier version still starts the broker, which names the keys that
// have no effect any more.
func TestIgnoredKeys(t *testing.T) {
	c, err := load(write(t, "limits:\n  user_uploads: 4\n  patience: 1m\n  user_calls: 7\n"))
	if err != nil || c.Limits.Calls != 7 {
		t.Fatalf("%+v, %v", c.Limits, err)
	}
	var log strings.Builder
	c.Limits.warnIgnored(slog.New(slog.NewTextHandler(&log, nil)))
	for _, key := range []string{"limits.user_uploads", "limits.patience"} {
		if strings.Count(log.String(), key) != 1 {
			t.Errorf("%s: %s", key, log.String())
		}
	}
	log.Reset()
	defaults().Limits.warnIgnored(slog.New(slog.NewTextHandler(&log, nil)))
	if log.Len() > 0 {
		t.Error(log.String())
	}
}
