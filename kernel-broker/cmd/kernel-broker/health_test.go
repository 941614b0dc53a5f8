// SPDX-License-Identifier: Apache-2.0

package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/authz"
)

// component's look warns with these words, or with empty ones passes.
func looks(t *testing.T, when string, look func() (string, error), words string) {
	t.Helper()
	c := component("x", look)
	if !c.Healthy || (c.Warning == "") != (words == "") || !strings.Contains(c.Warning, words) || strings.Contains(c.Warning, "\n") {
		t.Errorf("%s: %+v, want %q", when, c, words)
	}
}

func TestConfigurationHealth(t *testing.T) {
	file := filepath.Join(t.TempDir(), "broker.yaml")
	edit := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	edit("cluster: lab\n")
	c, err := load(file)
	if err != nil {
		t.Fatal(err)
	}
	looks(t, "as it was read", c.configurationHealth, "")
	edit("cluster: lab # a comment\n")
	looks(t, "edited", c.configurationHealth, file+" was edited and is not in force until systemctl restart kernel-broker")
	edit("clutser: lab\nlsiten: x\n")
	looks(t, "with two typos", c.configurationHealth, "the broker would not start with it: configuration: ")
	edit("cluster: lab\n")
	looks(t, "as it was", c.configurationHealth, "")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	looks(t, "removed", c.configurationHealth, "the broker would not start again: ")
	looks(t, "without a file", defaults().configurationHealth, "")
}

func TestPolicyHealth(t *testing.T) {
	c := defaults()
	c.Policy = filepath.Join(t.TempDir(), "policy.yaml")
	edit := func(text string) {
		t.Helper()
		if err := os.WriteFile(c.Policy, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	open := func() *authz.Authorizer {
		t.Helper()
		a, err := authz.New(authz.Options{File: c.Policy, Optional: true, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	a := open()
	look := func() (string, error) { return c.policyHealth(a) }
	looks(t, "without a file", look, "")
	edit("administrators:\n  users: [alice]\n")
	looks(t, "a file that is new", look, "policy.yaml was edited and is not in force until systemctl reload kernel-broker")
	if err := a.Reload(); err != nil {
		t.Fatal(err)
	}
	looks(t, "reloaded", look, "")
	edit("administrators:\n  users: [bob]\n")
	looks(t, "edited", look, "was edited and is not in force")
	edit("administrators: 7\n")
	looks(t, "edited, with a fault", look, "stays in force")
	if err := a.Reload(); err == nil {
		t.Error("a faulty policy is loaded")
	}
	if c := component("x", func() (string, error) { return c.policyHealth(a) }); c.Healthy || !strings.Contains(c.Detail, "stays in force") {
		t.Errorf("reloaded, with a fault: %+v", c)
	}
	if err := os.Remove(c.Policy); err != nil {
		t.Fatal(err)
	}
	c.Policy = ""
	looks(t, "without a policy", func() (string, error) { return c.policyHealth(open()) }, "")
}

func TestResetHealth(t *testing.T) {
	c := defaults()
	looks(t, "none", c.resetHealth, "")
	c.ResetCommand = []string{"/bin/sh", "{node}"}
	looks(t, "one that is there", c.resetHealth, "")
	c.ResetCommand = []string{filepath.Join(t.TempDir(), "ipmi-reset"), "{node}"}
	looks(t, "one that is not there", c.resetHealth, "ipmi-reset: no such file or directory")
	file := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c.ResetCommand[0] = file
	looks(t, "one that cannot be executed", c.resetHealth, "permission denied")
}
