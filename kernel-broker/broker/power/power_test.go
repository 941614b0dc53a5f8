// SPDX-License-Identifier: Apache-2.0

package power

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

func script(t *testing.T, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "bmc")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestNewRequiresPlaceholder(t *testing.T) {
	for _, argv := range [][]string{nil, {}, {"bmc"}, {"bmc", "reset"}, {"{node}"}, {"bmc-{node}", "reset"}} {
		if _, err := New(argv); !errors.Is(err, kb.ErrInvalid) {
			t.Errorf("New(%q) = %v", argv, err)
		}
	}
}

func TestResetNamesTheNode(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "out")
	c, err := New([]string{script(t, `for a; do echo "<$a>"; done >`+out), "-H", "{node}-bmc.site", "x{node}{node}", "reset; id"})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Reset(t.Context(), "n1"); err != nil {
		t.Fatal(err)
	}
	said, err := os.ReadFile(out)
	if err != nil || string(said) != "<-H>\n<n1-bmc.site>\n<xn1n1>\n<reset; id>\n" {
		t.Errorf("ran with %q, %v", said, err)
	}
	for _, node := range []string{"", "n1;id", "-n1", "n1 n2", "{node}"} {
		if err := c.Reset(t.Context(), node); !errors.Is(err, kb.ErrInvalid) {
			t.Errorf("Reset(%q) = %v", node, err)
		}
	}
}

func TestResetReportsErrors(t *testing.T) {
	c, err := New([]string{script(t, "echo no answer from $1; exit 3"), "{node}"})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Reset(t.Context(), "n1"); err == nil || !strings.Contains(err.Error(), "exit status 3: no answer from n1") {
		t.Errorf("Reset = %v", err)
	}
	missing, err := New([]string{filepath.Join(t.TempDir(), "bmc"), "{node}"})
	if err != nil {
		t.Fatal(err)
	}
	if err := missing.Reset(t.Context(), "n1"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Reset = %v", err)
	}
}

// A command that leaves a child behind does not hold the broker up: the child
// keeps its output open.
func TestResetDoesNotWaitForChildren(t *testing.T) {
	c, err := New([]string{script(t, "sleep 20 &"), "{node}"})
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if err := c.Reset(t.Context(), "n1"); err != nil {
		t.Errorf("Reset = %v", err)
	}
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("took %v", took)
	}
}

// A broker that may not act resets nothing.
func TestNoResetWithoutTheTerm(t *testing.T) {
	out, overtaken := filepath.Join(t.TempDir(), "out"), errors.New("another broker acts")
	c, err := New([]string{script(t, "touch "+out), "{node}"})
	if err != nil {
		t.Fatal(err)
	}
	c.Hold = func(context.Context) (context.Context, context.CancelFunc, error) { return nil, nil, overtaken }
	if err := c.Reset(t.Context(), "n1"); !errors.Is(err, overtaken) {
		t.Error(err)
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("it was reset")
	}
	c.Hold = func(ctx context.Context) (context.Context, context.CancelFunc, error) { return ctx, func() {}, nil }
	if err := c.Reset(t.Context(), "n1"); err != nil {
		t.Error(err)
	}
}
