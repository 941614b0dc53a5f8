// SPDX-License-Identifier: Apache-2.0

package kexec

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

func fake(t *testing.T, body string) (k Kexec, said func() string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "kernel"), 0o755); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "kexec")
	text := "#!/bin/sh\nloaded=" + dir + "/kernel/kexec_loaded\nfor a; do echo \"$a\" >>" + dir + "/args; done\n" + body + "\n"
	if err := os.WriteFile(program, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return Kexec{Program: program, LoadArgs: []string{"-c"}, ExecuteArgs: []string{"-x", "-y"}, Sys: dir}, func() string {
		raw, err := os.ReadFile(filepath.Join(dir, "args"))
		if err != nil {
			t.Fatal(err)
		}
		return strings.ReplaceAll(strings.TrimSpace(string(raw)), "\n", "|")
	}
}

func TestLoad(t *testing.T) {
	k, said := fake(t, `echo 1 >"$loaded"`)
	if err := k.Load(t.Context(), file(t, "the image"), file(t, "the initrd"), "root=/dev/vda a=b"); err != nil {
		t.Fatal(err)
	}
	if want := "-c|-l|/proc/self/fd/3|--command-line=root=/dev/vda a=b|--initrd=/proc/self/fd/4"; said() != want {
		t.Errorf("said %q, want %q", said(), want)
	}
	k, said = fake(t, `echo 1 >"$loaded"`)
	if err := k.Load(t.Context(), file(t, "the image"), nil, "ro"); err != nil || strings.Contains(said(), "initrd") {
		t.Errorf("said %q, %v", said(), err)
	}
}

func file(t *testing.T, content string) *os.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// The program reads the very files, whatever their names mean by then.
func TestLoadReadsTheOpenFiles(t *testing.T) {
	k, _ := fake(t, `cat /proc/self/fd/3 /proc/self/fd/4 >"${loaded%/*}/read"; echo 1 >"$loaded"`)
	image, initrd := file(t, "the image, "), file(t, "the initrd")
	for _, f := range []*os.File{image, initrd} {
		if err := os.Remove(f.Name()); err != nil {
			t.Fatal(err)
		}
	}
	if err := k.Load(t.Context(), image, initrd, "ro"); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(k.Sys, "kernel/read"))
	if err != nil || string(raw) != "the image, the initrd" {
		t.Errorf("read %q, %v", raw, err)
	}
}

// A locked-down kernel is asked to verify the signature.
func TestLockdown(t *testing.T) {
	for content, want := range map[string]string{
		"":                                   "-c|-i|-l",
		"[none] integrity confidentiality\n": "-c|-i|-l",
		"none [integrity] confidentiality\n": "-i|-s|-l",
		"none integrity [confidentiality]\n": "-i|-s|-l",
	} {
		k, said := fake(t, `case "$*" in *-u*) echo 0 ;; *) echo 1 ;; esac >"$loaded"`)
		k.LoadArgs = []string{"-c", "-i"}
		if content != "" {
			dir := filepath.Join(k.Sys, "kernel/security")
			if err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "lockdown"), []byte(content), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		if err := k.Load(t.Context(), file(t, "x"), nil, "ro"); err != nil || !strings.HasPrefix(said(), want+"|") {
			t.Errorf("%q: said %q, %v", content, said(), err)
		}
		if err := k.Unload(t.Context()); err != nil || strings.Contains(said(), "-s|-u") != strings.Contains(want, "-s") {
			t.Errorf("%q: said %q, %v", content, said(), err)
		}
	}
	k, _ := fake(t, "")
	dir := filepath.Join(k.Sys, "kernel/security")
	if err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "lockdown"), []byte("rubbish"), 0o644)); err != nil {
		t.Fatal(err)
	}
	if err := k.Load(t.Context(), file(t, "x"), nil, "ro"); err == nil || !strings.Contains(err.Error(), "rubbish") {
		t.Errorf("rubbish: %v", err)
	}
}

// Without securityfs lockdown is detected by trying, and so is a kernel with CONFIG_KEXEC_FILE alone, as Talos has one.
func TestLoadsByTheOtherCall(t *testing.T) {
	// The C library's words, with which kexec ends its messages.
	words := func(err syscall.Errno) string { return strings.ToUpper(err.Error()[:1]) + err.Error()[1:] }
	none := words(syscall.ENOSYS)
	for _, why := range []string{"Operation not permitted", "Permission denied", none} {
		k, said := fake(t, `case "$*" in
*-s*-u*) echo 0 >"$loaded" ;;
*-u*) echo "kexec unload failed: `+why+`" >&2; exit 255 ;;
*-s*) echo 1 >"$loaded" ;;
*) echo "kexec_load failed: `+why+`" >&2; exit 255 ;;
esac`)
		if err := k.Load(t.Context(), file(t, "x"), nil, "ro"); err != nil {
			t.Errorf("%s: said %q, %v", why, said(), err)
		}
		if err := k.Unload(t.Context()); err != nil {
			t.Errorf("%s: said %q, %v", why, said(), err)
		}
	}
	k, said := fake(t, `case "$*" in
*-s*) echo "syscall kexec_file_load not available." >&2; exit 253 ;;
*) echo "kexec_load failed: `+none+`" >&2; exit 255 ;;
esac`)
	if err := k.Load(t.Context(), file(t, "x"), nil, "ro"); err == nil || !strings.Contains(err.Error(), "kexec_file_load not available") || !strings.Contains(err.Error(), none) {
		t.Errorf("neither call: said %q, %v", said(), err)
	}
	k, said = fake(t, `case "$*" in
*-s*) echo "kexec_file_load failed: Key was rejected by service" >&2; exit 255 ;;
*) echo "kexec_load failed: Permission denied" >&2; exit 255 ;;
esac`)
	if err := k.Load(t.Context(), file(t, "x"), nil, "ro"); !errors.Is(err, ErrSignature) {
		t.Errorf("said %q, %v", said(), err)
	}
}

func TestLoadWithoutEffect(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		want string
		bad  bool
	}{
		"exit 0 without a loaded image": {`echo 0 >"$loaded"`, "holds no image", false},
		"junk":                          {`echo "Cannot determine the file type of x" >&2; exit 255`, "exit status 255", true},
		"refused":                       {`echo "kexec_load failed: Operation not permitted"; exit 255`, "not permitted", false},
		"unsigned":                      {`echo "kexec_file_load failed: Required key not available"; exit 255`, "PE signature", true},
		"no sysfs":                      {`rm -rf "${loaded%/*}"`, "not available", false},
	} {
		k, _ := fake(t, c.body)
		err := k.Load(t.Context(), file(t, "the image"), nil, "ro")
		if err == nil || !strings.Contains(err.Error(), c.want) || (errors.Is(err, errImage) || errors.Is(err, ErrSignature)) != c.bad {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestConcurrentLoad(t *testing.T) {
	k, _ := fake(t, `echo "kexec_load failed: Device or resource busy" >&2; exit 255`)
	if err := k.Load(t.Context(), file(t, "the image"), nil, "ro"); !errors.Is(err, kb.ErrUnavailable) {
		t.Errorf("no reason to try again: %v", err)
	}
}

func TestUnload(t *testing.T) {
	k, said := fake(t, `echo 0 >"$loaded"`)
	if err := k.Unload(t.Context()); err != nil || said() != "-u" {
		t.Errorf("said %q, %v", said(), err)
	}
	k, _ = fake(t, `echo 1 >"$loaded"`)
	if err := k.Unload(t.Context()); err == nil {
		t.Error("an image that is still held, and no error")
	}
}

func TestExecuteNeverSucceeds(t *testing.T) {
	for _, body := range []string{"exit 0", "exit 1"} {
		k, said := fake(t, body)
		if err := k.Execute(t.Context()); !errors.Is(err, errReturned) || said() != "-x|-y|-e" {
			t.Errorf("%s: said %q, %v", body, said(), err)
		}
	}
}

func TestExecuteLeavesTheNetworkOfARoot(t *testing.T) {
	k, said := fake(t, "exit 1")
	k.ExecuteArgs, k.NetworkRoot = []string{"-y"}, true
	if err := k.Execute(t.Context()); !errors.Is(err, errReturned) || said() != "-y|--no-ifdown|-e" {
		t.Errorf("said %q, %v", said(), err)
	}
}

func TestKexecEndsWithContext(t *testing.T) {
	k, _ := fake(t, "exec sleep 1000")
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	begun := time.Now()
	if err := k.Execute(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) > 2*time.Minute {
		t.Errorf("%v after %v", err, time.Since(begun))
	}
}
