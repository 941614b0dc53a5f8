// SPDX-License-Identifier: Apache-2.0

package survey

import (
	"bufio"
	"context"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/config"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/local"
	"github.com/kernelbroker/kernelbroker/kernel-broker/doctor"
)

func TestNoPanic(t *testing.T) {
	for line, want := range map[string]string{
		"root=/dev/vda ro panic=10":                         "",
		"panic=-1 quiet":                                    "",
		"root=/dev/vda ro quiet":                            "no panic=",
		"root=/dev/vda kernel.panic=10":                     "no panic=",
		"panic=10 panic=0":                                  "has panic=0",
		"panic=3 kernelbroker.begin root=/dev/vda":          "no panic=", // built into this kernel only
		"panic=3 kernelbroker.begin panic=10 root=/dev/vda": "",
		`x="panic=5" -- panic=10`:                           "no panic=",
	} {
		c := config.Config{Proc: t.TempDir(), Boot: config.Boot{KeepArguments: []string{"root", "panic"}}}
		write(t, c.Proc+"/cmdline", line+"\n", 0o644)
		if got := noPanic(c); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
		c.Boot.KeepArguments = []string{"root"}
		if got := noPanic(c); want == "" && !strings.Contains(got, "boot.keep_arguments has no panic") {
			t.Errorf("%s, not kept: %q", line, got)
		}
	}
	if got := noPanic(config.Config{Proc: t.TempDir()}); got != "" {
		t.Errorf("without a command line: %q", got)
	}
}

func TestNoCgroup2(t *testing.T) {
	dir := t.TempDir()
	if got := noCgroup2([]string{dir + "/*_slurmstepd.scope", dir}); !strings.Contains(got, dir+"/*_slurmstepd.scope, "+dir) || !strings.Contains(got, "cgroup2") {
		t.Errorf("in a plain folder: %q", got)
	}
	mounts, err := os.Open("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	defer mounts.Close()
	for lines := bufio.NewScanner(mounts); lines.Scan(); {
		if words := strings.Fields(lines.Text()); len(words) > 2 && words[2] == "cgroup2" {
			// The folder itself comes with slurmd.
			if got := noCgroup2([]string{dir, words[1] + "/none/*_slurmstepd.scope"}); got != "" {
				t.Errorf("in %s: %q", words[1], got)
			}
			return
		}
	}
	t.Log("no cgroup2 is mounted here")
}

func TestMissing(t *testing.T) {
	dir := t.TempDir()
	c, err := config.Parse("agent.yaml", []byte("broker: front:7440\nreboot: {command: ["+write(t, dir+"/plain", "", 0o644)+", now]}\n"+
		"kexec: {before: ["+dir+"/none]}\nslurmd: {start: ["+write(t, dir+"/start", "#!/bin/sh\n", 0o755)+"], scontrol: \"\"}\n"))
	if err != nil {
		t.Fatal(err)
	}
	got := missing(agentCommands(c))
	if len(got) != 2 || got[0].Key != "kexec.before" || got[0].Error != dir+"/none: no such file or directory" || got[1].Key != "reboot.command" || got[1].Error != dir+"/plain: permission denied" {
		t.Errorf("%+v", got)
	}
	if got := missing(map[string]string{"a": "sh", "b": "no-such-program-here"}); len(got) != 1 || !strings.HasPrefix(got[0].Error, "no-such-program-here: executable file not found") {
		t.Errorf("of the path: %+v", got)
	}
}

// runningAgent answers as an agent that started with a configuration.
type runningAgent struct{ started string }

func (a runningAgent) JobEnding(context.Context, uint32) (bool, error) { return false, nil }
func (a runningAgent) WaitReady(context.Context) error                 { return nil }
func (a runningAgent) Status() local.NodeStatus {
	return local.NodeStatus{Connected: true, Configuration: a.started}
}

// An edited agent.yaml is another one than its agent started with.
func TestEditedAgent(t *testing.T) {
	dir := t.TempDir()
	file := write(t, dir+"/agent.yaml", "broker: front:7440\nsocket: "+dir+"/s\n", 0o644)
	c, err := config.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	server, err := local.NewServer(c.Socket, runningAgent{c.Digest}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	edited := func() bool {
		s := &surveyor{Options: Options{AgentFile: file}, node: "n1", site: &doctor.Site{}}
		s.agent(t.Context())
		if s.site.Agent.Value == nil || s.site.Agent.Value.Error+s.site.Agent.Value.Answers != "" {
			t.Fatalf("%+v", s.site.Agent)
		}
		return s.site.Agent.Value.Edited
	}
	if edited() {
		t.Error("the file it started with counts as edited")
	}
	write(t, file, "broker: front:7440\nbroker_grace: 40s\nsocket: "+dir+"/s\n", 0o644)
	if !edited() {
		t.Error("an edit is not seen")
	}
}
