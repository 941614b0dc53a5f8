package kexec

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	kernelbroker "github.com/kernelbroker/kernelbroker/kernel-broker"
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
	if err := k.Load(t.Context(), "/image", "/initrd", "root=/dev/vda a=b"); err != nil {
		t.Fatal(err)
	}
	if want := "-c|-l|/image|--command-line=root=/dev/vda a=b|--initrd=/initrd"; said() != want {
		t.Errorf("said %q, want %q", said(), want)
	}
	k, said = fake(t, `echo 1 >"$loaded"`)
	if err := k.Load(t.Context(), "/image", "", "ro"); err != nil || strings.Contains(said(), "initrd") {
		t.Errorf("said %q, %v", said(), err)
	}
}

func TestLoadThatDidNot(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		want string
		bad  bool
	}{
		"exit 0 and nothing held": {`echo 0 >"$loaded"`, "holds nothing", false},
		"junk":                    {`echo "Cannot determine the file type of x" >&2; exit 255`, "exit status 255", true},
		"refused":                 {`echo "kexec_load failed: Operation not permitted"; exit 255`, "not permitted", false},
		"no sysfs":                {`rm -rf "${loaded%/*}"`, "not available", false},
	} {
		k, _ := fake(t, c.body)
		err := k.Load(t.Context(), "/image", "", "ro")
		if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, ErrImage) != c.bad {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLoadBesideAnother(t *testing.T) {
	k, _ := fake(t, `echo "kexec_load failed: Device or resource busy" >&2; exit 255`)
	if err := k.Load(t.Context(), "/image", "", "ro"); !errors.Is(err, kernelbroker.ErrUnavailable) {
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
		if err := k.Execute(t.Context()); !errors.Is(err, ErrReturned) || said() != "-x|-y|-e" {
			t.Errorf("%s: said %q, %v", body, said(), err)
		}
	}
}

func TestEndsWithItsContext(t *testing.T) {
	k, _ := fake(t, "exec sleep 100")
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	begun := time.Now()
	if err := k.Execute(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) > 5*time.Second {
		t.Errorf("%v after %v", err, time.Since(begun))
	}
}
