// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/local"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

// agentctl runs the command line in this process.
func agentctl(args ...string) (string, error) {
	cmd := command()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(context.Background())
	return out.String(), err
}

func (n *fakeNode) configFile() string {
	n.t.Helper()
	raw, err := yaml.Marshal(n.config)
	if err != nil {
		n.t.Fatal(err)
	}
	n.file("agent.yaml", string(raw))
	return n.path("agent.yaml")
}

func TestUsage(t *testing.T) {
	n := newFakeNode(t, "127.0.0.1:1")
	good := n.configFile()
	n.file("bad.yaml", "broker: b:1\nsokcet: /x\n")
	n.file("list.yaml", "cluster: alpha\nkyes: []\n")
	for _, c := range []struct {
		args  []string
		usage bool
		want  string
	}{
		{[]string{"--help"}, false, "verified"},
		{[]string{"--version"}, false, version},
		{[]string{"--check", "--config", good}, false, ""},
		{[]string{"--check", "--config", n.path("bad.yaml")}, true, "line 2"},
		{[]string{"check-trust", "../../auth/signing/trust.sample.yaml"}, false, ""},
		{[]string{"check-trust", n.path("list.yaml")}, true, `unknown key "kyes"`},
		{[]string{"check-trust"}, true, "accepts 1 arg"},
		{[]string{"--config", "/nonexistent"}, true, "no such file"},
		{[]string{"--wrong"}, true, "unknown flag"},
		{[]string{"stauts"}, true, "stauts"},
		{[]string{"status", "--output", "xml", "--config", good}, true, "xml"},
		{[]string{"wait-ready", "--timeout", "-1s", "--config", good}, true, "not positive"},
	} {
		out, err := agentctl(c.args...)
		var usage usageError
		if errors.As(err, &usage) != c.usage || !c.usage && err != nil {
			t.Errorf("%v: %v", c.args, err)
		}
		if err != nil {
			out += err.Error()
		}
		if !strings.Contains(out, c.want) {
			t.Errorf("%v: %s", c.args, out)
		}
	}
}

func TestStatusAndWaitReady(t *testing.T) {
	b := newFakeBroker(t)
	n := newFakeNode(t, b.address)
	path := n.configFile()
	var usage usageError
	if _, err := agentctl("wait-ready", "--timeout", "300ms", "--config", path); err == nil || errors.As(err, &usage) {
		t.Errorf("no agent: %v", err)
	}
	waited := make(chan error, 1)
	go func() {
		_, err := agentctl("wait-ready", "--timeout", patience.String(), "--config", path)
		waited <- err
	}()
	n.up()
	b.setDesired(&api.Desired{Attested: true, RunningProfile: "stock", RunningVersion: 1})
	b.slurmd(false, 0)
	select {
	case err := <-waited:
		t.Fatalf("ready too early: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	b.setDesired(desiredStock(1))
	if err := <-waited; err != nil {
		t.Error(err)
	}
	b.slurmd(true, 1)
	out, err := agentctl("status", "--config", path)
	if err != nil || !strings.Contains(out, "stock@1") || !strings.Contains(out, "running") {
		t.Errorf("table: %v\n%s", err, out)
	}
	out, err = agentctl("status", "--output", "json", "--config", path)
	var status local.NodeStatus
	if err := errors.Join(err, json.Unmarshal([]byte(out), &status)); err != nil || status.Profile != "stock" || !status.Ready || !status.Connected {
		t.Errorf("json: %v\n%s", err, out)
	}
}
