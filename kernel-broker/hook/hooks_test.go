// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// slack allows for a loaded machine; a failure would hang for ever.
const slack = 20 * time.Second

func TestEpilog(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	stop := h.serve()
	for range 2 {
		if code, output, _ := h.run(environment(), epilogName, "--config="+h.path("client.yaml")); code != 0 {
			t.Errorf("exit %d: %s", code, output)
		}
	}
	if _, releases, _ := h.broker.seen(); len(releases) != 2 || releases[0].GetJobId() != 12 {
		t.Errorf("released %v", releases)
	}
	stop()
	code, output, took := h.run(environment(), epilogName, "--config", h.path("client.yaml"))
	if code != 0 || took > epilogLimit+slack || !strings.Contains(h.read("log"), "job end not reported to the broker") {
		t.Errorf("without a broker: exit %d after %v: %s", code, took, output)
	}
}

func TestReboot(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.serve()
	config := "--config=" + h.path("client.yaml")
	for _, list := range []string{"n1,n2,n3", "n[1-3]"} {
		if code, output, _ := h.run([]string{asHook + "=1"}, rebootName, config, list); code != 0 {
			t.Errorf("exit %d: %s", code, output)
		}
	}
	_, _, reboots := h.broker.seen()
	for _, r := range reboots {
		if strings.Join(r.GetNodes(), " ") != "n1 n2 n3" {
			t.Errorf("noted %v", r)
		}
	}
	if len(reboots) != 2 {
		t.Errorf("noted %d times", len(reboots))
	}
	for _, arguments := range [][]string{{rebootName, config}, {rebootName, config, "n[1-"}} {
		if code, _, _ := h.run([]string{asHook + "=1"}, arguments...); code != 0 {
			t.Errorf("%v: exit %d", arguments, code)
		}
	}
}

// slurmctld 22.05 runs RebootProgram with all descriptors closed, by the name
// in slurm.conf, and waits for it with a thread that it needs elsewhere.
func TestRebootAsSlurmctldRunsIt(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, h.path("reboot")); err != nil {
		t.Fatal(err)
	}
	closed := func() (time.Duration, error) {
		begin := time.Now()
		cmd := exec.Command("/bin/sh", "-c", `exec "$0" --config "$1" n1,n2 <&- >&- 2>&-`, h.path("reboot"), h.path("client.yaml"))
		cmd.Env = []string{asHook + "=1"}
		err := cmd.Run()
		return time.Since(begin), err
	}
	stop := h.serve()
	_, err = closed()
	if _, _, reboots := h.broker.seen(); err != nil || len(reboots) != 1 {
		t.Errorf("%v, noted %v, log %s", err, reboots, h.read("log"))
	}
	stop()
	if took, err := closed(); err != nil || took > rebootLimit+slack {
		t.Errorf("no broker: %v after %v", err, took)
	}
	listener, err := net.Listen("unix", h.path("broker.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	if took, err := closed(); err != nil || took > rebootLimit+slack {
		t.Errorf("silent broker: %v after %v", err, took)
	}
}

func TestUsageErrors(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	for _, c := range []struct {
		arguments []string
		code      int
		words     string
	}{
		{nil, 2, "usage:"}, {[]string{"other"}, 2, "usage:"}, {[]string{"--help"}, 0, "exit codes:"}, {[]string{"--version"}, 0, "test"},
	} {
		code, output, _ := h.run([]string{asHook + "=1"}, c.arguments...)
		if code != c.code || !strings.Contains(output, c.words) {
			t.Errorf("%v: exit %d: %s", c.arguments, code, output)
		}
	}
	h.write("client.yaml", "brokr: x\n")
	if code, output, _ := h.prolog(); code != 1 || !strings.Contains(output, `unknown key \"brokr\"`) {
		t.Errorf("bad settings: exit %d: %s", code, output)
	}
	if code, _, _ := h.run(environment(), epilogName, "--config", h.path("client.yaml")); code != 0 {
		t.Errorf("epilog with bad settings: exit %d", code)
	}
	if code, output, _ := h.prolog("SLURM_JOB_NODELIST=n["); code != 1 {
		t.Errorf("bad nodes: exit %d: %s", code, output)
	}
}

func TestJobOf(t *testing.T) {
	for _, c := range []struct {
		env                     map[string]string
		reference, whole, wrong string
	}{
		{map[string]string{"SLURM_JOB_ID": "12"}, "12", "12", ""},
		{map[string]string{"SLURM_JOB_ID": "12", "SLURM_ARRAY_JOB_ID": "12", "SLURM_ARRAY_TASK_ID": "0"}, "12_0", "12_0", ""},
		{map[string]string{"SLURM_JOB_ID": "13", "SLURM_HET_JOB_ID": "12", "SLURM_HET_JOB_OFFSET": "1"}, "12+1", "12", ""},
		{map[string]string{}, "", "", "SLURM_JOB_ID"},
		{map[string]string{"SLURM_JOB_ID": "0"}, "", "", "SLURM_JOB_ID is 0"},
		{map[string]string{"SLURM_JOB_ID": "4294967296"}, "", "", "SLURM_JOB_ID"},
		{map[string]string{"SLURM_JOB_ID": "1", "SLURM_JOB_RESTART_COUNT": "-1"}, "", "", "SLURM_JOB_RESTART_COUNT"},
		{map[string]string{"SLURM_JOB_ID": "1", "SLURM_ARRAY_JOB_ID": "1"}, "", "", "SLURM_ARRAY_TASK_ID"},
		{map[string]string{"SLURM_JOB_ID": "1", "SLURM_HET_JOB_ID": "1;x", "SLURM_HET_JOB_OFFSET": "0"}, "", "", "SLURM_HET_JOB_ID"},
	} {
		j, err := jobOf(func(name string) string { return c.env[name] })
		if j.reference != c.reference || j.whole != c.whole || (err == nil) != (c.wrong == "") {
			t.Errorf("%v: %+v, %v", c.env, j, err)
		}
		if err != nil && (!errors.Is(err, kb.ErrInvalid) || !strings.Contains(err.Error(), c.wrong)) {
			t.Errorf("%v: %v", c.env, err)
		}
	}
}

func TestOldFailuresExpire(t *testing.T) {
	now := time.Now()
	counts := tally{filepath.Join(t.TempDir(), "state")}
	one := job{id: kb.JobID{Job: 1}}
	if n, err := counts.add(one, now); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if err := os.WriteFile(filepath.Join(counts.dir, "README"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	later := now.Add(tallyAge + time.Hour)
	if n, err := counts.add(job{id: kb.JobID{Job: 12}}, later); n != 1 || err != nil {
		t.Errorf("another job: %d, %v", n, err)
	}
	left, err := filepath.Glob(filepath.Join(counts.dir, "*"))
	if err != nil || len(left) != 2 {
		t.Errorf("left: %v, %v", left, err)
	}
	if _, err := (tally{"/proc/nowhere"}).add(one, now); err == nil {
		t.Error("a folder that cannot be made is no error")
	}
}

func TestScontrolIsBounded(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "scontrol")
	// The child keeps the output open after its parent is dead.
	if err := os.WriteFile(path, []byte("#!/bin/sh\nsleep 60 &\nsleep 60\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	_, err := scontrol{path: path, limit: 200 * time.Millisecond}.run(t.Context(), "show")
	if err == nil || time.Since(begin) > slack {
		t.Errorf("%v after %v", err, time.Since(begin))
	}
}

func TestUnavailableLogs(t *testing.T) {
	var text strings.Builder
	log, done := openLog(&text, filepath.Join(t.TempDir(), "no", "log"), "x")
	defer done()
	log.Log(t.Context(), slog.LevelInfo, "said")
	if !strings.Contains(text.String(), "log file and syslog unavailable") || !strings.Contains(text.String(), "said") {
		t.Errorf("log: %s", text.String())
	}
	// A log that breaks leaves the other alone.
	path := filepath.Join(t.TempDir(), "log")
	log, end := openLog(brokenWriter{}, path, "x")
	log.Info("said")
	end()
	if content, err := os.ReadFile(path); err != nil || !strings.Contains(string(content), "said") {
		t.Errorf("log: %q, %v", content, err)
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, fmt.Errorf("broken") }
