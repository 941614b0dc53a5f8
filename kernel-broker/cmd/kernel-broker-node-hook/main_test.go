// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/local"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/nodestate"
)

// asHook makes the test program be the hook.
const asHook = "KERNEL_BROKER_TEST_HOOK"

func TestMain(m *testing.M) {
	if os.Getenv(asHook) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// agent answers as the test tells it to.
type agent struct {
	kept  bool
	err   error
	asked []uint32
}

func (a *agent) JobEnding(_ context.Context, job uint32) (bool, error) {
	a.asked = append(a.asked, job)
	return a.kept, a.err
}
func (a *agent) Status() local.NodeStatus        { return local.NodeStatus{} }
func (a *agent) WaitReady(context.Context) error { return nil }

func serve(t *testing.T, a *agent, profile string) paths {
	t.Helper()
	dir := t.TempDir()
	p := paths{socket: filepath.Join(dir, "s"), state: filepath.Join(dir, "node.state")}
	if profile != "" {
		if err := nodestate.Write(p.state, nodestate.State{BootID: "b", Profile: profile, Version: 1}); err != nil {
			t.Fatal(err)
		}
	}
	server, err := local.NewServer(p.socket, a, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return p
}

func TestEpilog(t *testing.T) {
	for _, c := range []struct {
		name, profile, job string
		agent              agent
		asked              int
		said, failed       string
	}{
		{"stock", "stock", "12", agent{}, 0, "", ""},
		{"goes back", "mitgcm", "12", agent{}, 1, "goes back to stock", ""},
		{"kept", "mitgcm", "12", agent{kept: true}, 1, "is kept", ""},
		{"no state", "", "12", agent{kept: true}, 1, "is kept", ""},
		{"broker away", "mitgcm", "12", agent{err: errors.New("no stream")}, 1, "", "no stream"},
		{"no job", "mitgcm", "", agent{}, 0, "", "no job id"},
		{"odd job", "mitgcm", "12; reboot", agent{}, 0, "", "no job id"},
	} {
		p := serve(t, &c.agent, c.profile)
		var said bytes.Buffer
		err := epilog(p, c.job, &said)
		text := ""
		if err != nil {
			text = err.Error()
		}
		if len(c.agent.asked) != c.asked || !strings.Contains(said.String(), c.said) || c.said == "" && said.Len() > 0 ||
			!strings.Contains(text, c.failed) || c.failed == "" && err != nil {
			t.Errorf("%s: asked %v, said %q, %v", c.name, c.agent.asked, said.String(), err)
		}
	}
}

// Slurm drains a node whose epilog fails.
func TestEpilogNeverFails(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
	}{
		{[]string{"--socket", "/nonexistent", "--node-state", "/nonexistent"}, 0},
		{[]string{"--version"}, 0},
		{[]string{"--help"}, 0},
		{[]string{"--wrong"}, exitUsage},
		{[]string{"word"}, exitUsage},
	} {
		cmd := exec.Command(os.Args[0], c.args...)
		cmd.Env = append(os.Environ(), asHook+"=1", "SLURM_JOB_ID=12")
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != c.code {
			t.Errorf("%v: %v\n%s", c.args, err, out)
		}
	}
}
