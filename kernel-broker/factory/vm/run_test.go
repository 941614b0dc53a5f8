// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// fake stands in for QEMU: it does what the file "plan" in the run's folder
// says, and leaves its arguments in "arguments".
func fake(t *testing.T, plan string) (Guest, string) {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "bin", qemuProgram), "#!/bin/sh\nprintf '%s\\n' \"$@\" >arguments\n. ./plan\n")
	t.Setenv("PATH", filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
	out := filepath.Join(dir, "out")
	write(t, filepath.Join(out, "plan"), plan)
	return Guest{
		Kernel: write(t, filepath.Join(dir, "bzImage"), "kernel"),
		Initrd: write(t, filepath.Join(dir, "initrd"), "initrd"),
		Limit:  10 * time.Minute,
	}, out
}

const sendResult = `mkdir -p run out/deep
echo 3 >run/exit
echo text >out/deep/file
: >run/whole
tar -c run/exit out run/whole | gzip >result.tar.gz
`

func TestRun(t *testing.T) {
	guest, out := fake(t, "echo up >console.log\n"+sendResult)
	var console bytes.Buffer
	guest.Console = &console
	stale := write(t, filepath.Join(out, filesDir, "stale"), "of an earlier run")
	result, err := Run(t.Context(), guest, out)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(result.Files, "deep/file"))
	if err != nil || string(text) != "text\n" || result.ExitCode != 3 || result.Wall <= 0 {
		t.Errorf("file %q, %v, result %+v", text, err, result)
	}
	if console.String() != "up\n" {
		t.Errorf("console got %q", console.String())
	}
	for _, path := range []string{stale, filepath.Join(out, streamFile)} {
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is there: %v", path, err)
		}
	}
}

func TestRunThatDoesNotEndWell(t *testing.T) {
	cases := map[string]struct {
		plan   string
		reason Reason // none: no fault of the kernel
		want   string
	}{
		"panic": {"echo early; printf 'a\\r\\n[1.0] Kernel panic - not syncing: no init\\r\\nlate\\n' >console.log",
			ReasonPanic, "kernel panic: [1.0] Kernel panic - not syncing: no init"},
		"no first program": {"printf 'a\\r\\nFailed to execute /init (error -8)\\r\\nPlease press Enter' >console.log; exec sleep 1000",
			ReasonInit, "the first program does not start: Failed to execute /init (error -8); the console's end"},
		"panic after a result": {sendResult + "echo Kernel panic - not syncing: x >console.log", ReasonPanic, "kernel panic"},
		"hang":                 {"echo still here >console.log; exec sleep 1000", ReasonHang, "still here"},
		"reset":                {"echo gone >console.log", ReasonReset, "no such file"},
		"prints without end":   {"head -c 20000000 /dev/zero >console.log; exec sleep 1000", ReasonEndless, "too much output"},
		"sends without end":    {"echo up >console.log; truncate -s 3G result.tar.gz; exec sleep 1000", ReasonEndless, "too much output"},
		"cut result":           {sendResult + "truncate -s 40 result.tar.gz", ReasonReset, "unexpected EOF"},
		"refused by QEMU":      {"echo no such machine >&2; exit 1", "", "exit status 1: no such machine"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			guest, out := fake(t, c.plan)
			if c.reason == ReasonHang {
				guest.Limit = 5 * time.Second // to start a shell in
			}
			_, err := Run(t.Context(), guest, out)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error is %v, want %q", err, c.want)
			}
			var failure *BootError
			if errors.As(err, &failure) != (c.reason != "") {
				t.Fatalf("error is %#v", err)
			}
			if failure != nil && (failure.Reason != c.reason || len(failure.Tail) > tailBytes) {
				t.Errorf("reason is %v, want %v, with %d bytes", failure.Reason, c.reason, len(failure.Tail))
			}
		})
	}
}

// QEMU goes on when it cannot write what a guest says.
func TestNoRoom(t *testing.T) {
	if err := noRoom(t.TempDir()); err != nil {
		t.Error(err)
	}
	if err := noRoom("/proc"); !errors.Is(err, syscall.ENOSPC) { // which has no blocks at all
		t.Errorf("error is %v", err)
	}
}

func TestRunIsStopped(t *testing.T) {
	guest, out := fake(t, "exec sleep 1000")
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := Run(ctx, guest, out); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error is %v", err)
	}
}

func TestRunRefuses(t *testing.T) {
	guest, out := fake(t, sendResult)
	for name, change := range map[string]func(*Guest){
		"no kernel":       func(g *Guest) { g.Kernel = "" },
		"no initrd":       func(g *Guest) { g.Initrd = "" },
		"no limit":        func(g *Guest) { g.Limit = 0 },
		"-1 CPUs":         func(g *Guest) { g.CPUs = -1 },
		"exact, and 2":    func(g *Guest) { g.CPUs, g.Exact = 2, true },
		"nothing is coun": func(g *Guest) { g.KVM, g.Exact = true, true },
		"nothing is":      func(g *Guest) { g.KVM, g.Plugins = true, []Plugin{{Path: g.Kernel}} },
		"no such file":    func(g *Guest) { g.Kernel = "/nowhere/bzImage" },
		"no such file or": func(g *Guest) { g.Plugins = []Plugin{{Path: "/nowhere/plugin.so"}} },
	} {
		wrong := guest
		change(&wrong)
		if _, err := Run(t.Context(), wrong, out); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error is %v", name, err)
		}
	}
}

func TestMachine(t *testing.T) {
	guest, out := fake(t, sendResult)
	plugin := write(t, filepath.Join(t.TempDir(), "count.so"), "")
	guest.Plugins = []Plugin{{Path: plugin, Args: []string{"out=x", "trace=y"}}}
	guest.Exact, guest.MemoryMiB, guest.Disk = true, 100, 1<<20
	guest.Arguments = []string{"panic=3"}
	if _, err := Run(t.Context(), guest, out); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(out, "arguments"))
	if err != nil {
		t.Fatal(err)
	}
	given := strings.Split(string(text), "\n")
	for option, want := range map[string]string{
		"-smp": "1", "-m": "100", "-plugin": plugin + ",out=x,trace=y", "-icount": "shift=0,sleep=off", "-seed": "1",
	} {
		if i := slices.Index(given, option); i < 0 || given[i+1] != want {
			t.Errorf("%s %s is not among %q", option, want, given)
		}
	}
	line := given[slices.Index(given, "-append")+1]
	if !strings.Contains(line, " nokaslr norandmaps ") || !strings.HasSuffix(line, " panic=3") {
		t.Errorf("command line is %q", line)
	}
	if _, err := os.Stat(filepath.Join(out, diskFile)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the disk is left: %v", err)
	}
	guest.Exact, guest.CPUs = false, 4
	if i := slices.Index(guest.machine(), "-smp"); guest.machine()[i+1] != "4" {
		t.Errorf("arguments are %q", guest.machine())
	}
	for _, option := range []string{"-icount", "-rtc", "-seed"} {
		if slices.Contains(guest.machine(), option) {
			t.Errorf("%s without need", option)
		}
	}
	guest.KVM = true
	for option, want := range map[string]string{"-accel": "kvm", "-cpu": "host"} {
		if i := slices.Index(guest.machine(), option); guest.machine()[i+1] != want {
			t.Errorf("%s is not %s among %q", option, want, guest.machine())
		}
	}
}
