// SPDX-License-Identifier: Apache-2.0

package slurmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/decide"
)

// fake is a daemon called slurmd that the start command leaves behind; with
// stubborn set it does not mind SIGTERM.
func fake(t *testing.T, stubborn bool) *Slurmd {
	t.Helper()
	dir := t.TempDir()
	// Generous, for a loaded machine; no test waits that long.
	trap, stopTimeout := "", 30*time.Second
	if stubborn {
		trap, stopTimeout = "trap '' TERM\n", 300*time.Millisecond
	}
	daemon := "#!/bin/sh\n" + trap + "echo $$ >" + dir + "/pid\nwhile :; do sleep 0.05; done\n"
	start := "#!/bin/sh\n[ ! -e " + dir + "/fault ] || { echo no munge >&2; exit 1; }\n[ -e " + dir + "/lazy ] || " +
		dir + "/slurmd >/dev/null 2>&1 &\n"
	for name, text := range map[string]string{"slurmd": daemon, "start": start} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s := &Slurmd{
		StartCommand: []string{dir + "/start"}, PIDFile: dir + "/pid", MarkFile: dir + "/run/mark",
		StartTimeout: 30 * time.Second, StopTimeout: stopTimeout, BootID: "boot-1",
	}
	t.Cleanup(func() {
		pid, _ := s.process()
		if err := s.signal(pid, syscall.SIGKILL); err != nil {
			t.Error(err)
		}
	})
	return s
}

func (s *Slurmd) must(t *testing.T, running bool, mark decide.Mark, start uint64) {
	t.Helper()
	got, err := s.Observe()
	if want := (decide.Slurmd{Running: running, Mark: mark, Start: start}); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}

func TestStartAndStop(t *testing.T) {
	s := fake(t, false)
	s.must(t, false, decide.Untouched, 0)
	if err := s.Start(t.Context(), 4, true); err != nil {
		t.Fatal(err)
	}
	s.must(t, true, decide.Started, 4)
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.must(t, false, decide.Stopped, 4)
	if err := s.Stop(t.Context()); err != nil {
		t.Errorf("stopping a stopped daemon: %v", err)
	}
	// Another boot starts without state.
	s.BootID = "boot-2"
	s.must(t, false, decide.Untouched, 0)
}

// slurmd removes its pid file first, and saves what it knows of jobs when its threads are done: another one that starts before
// that does not know them, and drains the node with "Prolog error".
func TestStopWaitsForTheProcess(t *testing.T) {
	s := fake(t, false)
	dir := filepath.Dir(s.PIDFile)
	daemon := "#!/bin/sh\ntrap 'rm " + dir + "/pid; sleep 0.5; touch " + dir + "/saved; exit' TERM\necho $$ >" + dir + "/pid\nwhile :; do sleep 0.05; done\n"
	if err := os.WriteFile(filepath.Join(dir, "slurmd"), []byte(daemon), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context(), 1, true); err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir + "/saved"); err != nil {
		t.Errorf("stopped before the daemon ended: %v", err)
	}
}

// endsSlowly makes the daemon remove its pid file at once, and save what it knows of jobs when the file "release" is there.
func endsSlowly(t *testing.T, s *Slurmd) (release func()) {
	t.Helper()
	dir := filepath.Dir(s.PIDFile)
	daemon := "#!/bin/sh\ntrap 'rm -f " + dir + "/pid; until [ -e " + dir + "/release ]; do sleep 0.05; done; touch " + dir +
		"/saved; exit' TERM\necho $$ >" + dir + "/pid\nwhile :; do sleep 0.05; done\n"
	if err := os.WriteFile(filepath.Join(dir, "slurmd"), []byte(daemon), 0o755); err != nil {
		t.Fatal(err)
	}
	release = func() {
		if err := os.WriteFile(dir+"/release", nil, 0o644); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(release)
	return release
}

// stopLeft begins to stop the daemon and leaves it when the pid file is gone; it returns the process.
func (s *Slurmd) stopLeft(t *testing.T) int {
	t.Helper()
	pid, _ := s.process()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		gone := func() bool { _, err := os.Stat(s.PIDFile); return err != nil }
		if !wait(t.Context(), 30*time.Second, gone) {
			t.Error("the daemon does not end")
		}
	}()
	if err := s.Stop(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a stop that was left: %v", err)
	}
	return pid
}

// The end of the agent is no reason to kill a daemon that is ending.
func TestAgentEndsDuringStop(t *testing.T) {
	s := fake(t, false)
	release := endsSlowly(t, s)
	if err := s.Start(t.Context(), 1, true); err != nil {
		t.Fatal(err)
	}
	pid := s.stopLeft(t)
	release()
	if !wait(t.Context(), 30*time.Second, func() bool { return !runs(pid) }) {
		t.Error("the daemon does not end")
	}
	if _, err := os.Stat(filepath.Dir(s.PIDFile) + "/saved"); err != nil {
		t.Errorf("the daemon was killed: %v", err)
	}
}

// An agent takes over from one that was killed while the daemon ended: its pid file is gone, and it still runs.
func TestNextAgentWaitsForTheProcess(t *testing.T) {
	s := fake(t, false)
	release := endsSlowly(t, s)
	if err := s.Start(t.Context(), 1, true); err != nil {
		t.Fatal(err)
	}
	s.stopLeft(t)
	next := &Slurmd{PIDFile: s.PIDFile, MarkFile: s.MarkFile, StartTimeout: s.StartTimeout, StopTimeout: s.StopTimeout, BootID: s.BootID}
	next.must(t, true, decide.Stopped, 1)
	time.AfterFunc(300*time.Millisecond, release)
	if err := next.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Dir(s.PIDFile) + "/saved"); err != nil {
		t.Errorf("stopped before the daemon ended: %v", err)
	}
	next.must(t, false, decide.Stopped, 1)
	if _, err := os.Stat(s.endingFile()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the note of the stop is left: %v", err)
	}
}

// The note of a stop is of one boot, and of a slurmd.
func TestStaleNoteOfStop(t *testing.T) {
	s := fake(t, false)
	if err := s.Start(t.Context(), 1, true); err != nil {
		t.Fatal(err)
	}
	pid, _ := s.process()
	defer func() { _ = s.signal(pid, syscall.SIGKILL) }()
	if err := os.Remove(s.PIDFile); err != nil {
		t.Fatal(err)
	}
	for note, want := range map[string]bool{
		fmt.Sprintf("boot-1 %d\n", pid):         true,
		fmt.Sprintf("boot-0 %d\n", pid):         false,
		fmt.Sprintf("boot-1 %d\n", os.Getpid()): false,
		"boot-1":                                false,
		fmt.Sprintf("boot-1 %d more\n", pid):    false,
	} {
		if err := os.WriteFile(s.endingFile(), []byte(note), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, running := s.process(); running != want {
			t.Errorf("%q: running %v", note, running)
		}
	}
}

// A damaged mark hides what was done to the daemon, not that it runs, and does not keep it from being stopped.
func TestInvalidMark(t *testing.T) {
	s := fake(t, false)
	if err := s.Start(t.Context(), 1, true); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.MarkFile, []byte("boot-1 paused 1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Observe(); !errors.Is(err, kb.ErrInvalid) || got != (decide.Slurmd{Running: true}) {
		t.Errorf("%+v, %v", got, err)
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.must(t, false, decide.Stopped, 0)
}

// The other command makes the starts without a claim, and those alone.
func TestPlainStart(t *testing.T) {
	s := fake(t, false)
	dir := filepath.Dir(s.PIDFile)
	s.PlainCommand = []string{"/bin/sh", "-c", "echo plain >>" + dir + "/plains; exec " + dir + "/start"}
	for i, claim := range []bool{false, true} {
		if err := s.Start(t.Context(), uint64(i), claim); err != nil {
			t.Fatal(err)
		}
		s.must(t, true, decide.Started, uint64(i))
		if err := s.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if text, err := os.ReadFile(dir + "/plains"); err != nil || string(text) != "plain\n" {
			t.Errorf("%q, %v", text, err)
		}
	}
}

func TestStopIsBounded(t *testing.T) {
	s := fake(t, true)
	if err := s.Start(t.Context(), 1, true); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	if err := s.Stop(t.Context()); err != nil || time.Since(begun) < s.StopTimeout {
		t.Errorf("%v after %v", err, time.Since(begun))
	}
	s.must(t, false, decide.Stopped, 1)
}

func TestStartThatFails(t *testing.T) {
	for file, want := range map[string]string{"fault": "no munge", "lazy": "no process"} {
		s := fake(t, false)
		if file == "lazy" {
			s.StartTimeout = 3 * time.Second // all of it elapses
		}
		if err := os.WriteFile(filepath.Join(filepath.Dir(s.PIDFile), file), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := s.Start(t.Context(), 1, true); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", file, err)
		}
		s.must(t, false, decide.Untouched, 0)
	}
}

// The pid in a stale pid file may belong to another process.
func TestReusedPidIsNotKilled(t *testing.T) {
	s := fake(t, false)
	other := exec.Command("sleep", "100")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := other.Process.Kill(); err != nil {
			t.Errorf("it was killed: %v", err)
		}
		_ = other.Wait() // killed just now
	}()
	if err := os.WriteFile(s.PIDFile, []byte(strconv.Itoa(other.Process.Pid)+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	s.must(t, false, decide.Untouched, 0)
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := other.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the process ended: %v", err)
	}
}

func TestStopCommand(t *testing.T) {
	s := fake(t, false)
	if err := s.Start(t.Context(), 1, true); err != nil {
		t.Fatal(err)
	}
	s.StopCommand = []string{"/bin/sh", "-c", "kill $(cat " + s.PIDFile + ")"}
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.must(t, false, decide.Stopped, 1)
	s.StopCommand = []string{"/bin/false"}
	if err := s.Stop(t.Context()); err == nil {
		t.Error("a stop command that fails, and no error")
	}
}

// A command that is not done in time is said to be that, and may be tried again.
func TestStopCommandTakesLong(t *testing.T) {
	s := fake(t, false)
	if err := s.Start(t.Context(), 1, true); err != nil {
		t.Fatal(err)
	}
	s.StopCommand, s.StopTimeout = []string{"/bin/sleep", "100"}, 300*time.Millisecond
	err := s.Stop(t.Context())
	if !errors.Is(err, kb.ErrUnavailable) || !strings.Contains(err.Error(), "not done within 300ms") || strings.Contains(err.Error(), "killed") {
		t.Errorf("%v", err)
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add("12 (slurmd) S 1 2")
	f.Add("12 (a) b) (c) Z")
	f.Fuzz(func(t *testing.T, stat string) {
		if comm, state, ok := parseStat(stat); ok && !strings.Contains(stat, "("+comm+")") {
			t.Fatalf("%q, %c from %q", comm, state, stat)
		}
	})
}

// TestEnd: a slurmd that was stopped is not one that ended by itself. Without a service manager nobody knows the difference.
func TestEnd(t *testing.T) {
	for name, c := range map[string]struct {
		failed []string
		died   bool
	}{
		"systemd says failed":   {[]string{"true"}, true},
		"systemd says inactive": {[]string{"false"}, false},
		"systemd cannot answer": {[]string{"/nowhere/systemctl"}, false},
		"no service manager":    {nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := fake(t, false)
			s.FailedCommand = c.failed
			if err := s.Start(t.Context(), 1, false); err != nil {
				t.Fatal(err)
			}
			s.must(t, true, decide.Started, 1)
			pid, _ := s.process()
			if err := s.signal(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if !wait(t.Context(), time.Minute, func() bool { return !runs(pid) }) {
				t.Fatal("still there after SIGKILL")
			}
			got, err := s.Observe()
			if err != nil || got.Running || got.Died != c.died {
				t.Errorf("%+v, %v, want one that died: %v", got, err, c.died)
			}
			if err := s.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
			s.must(t, false, decide.Stopped, 1)
		})
	}
}
