// SPDX-License-Identifier: Apache-2.0

package slurmexec

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

func script(t *testing.T, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "squeue")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestRun(t *testing.T) {
	t.Setenv("INHERITED", "yes")
	for name, c := range map[string]struct {
		runner         Runner
		body           string
		stdout, stderr string
	}{
		"this cluster only": {Runner{}, `echo "$SQUEUE_LOCAL $SCONTROL_LOCAL $INHERITED $SLURM_CONF"`, "1 1 yes \n", ""},
		"an environment":    {Runner{Environ: []string{"A=b"}, Conf: "/x/slurm.conf"}, `echo "$A $INHERITED $SLURM_CONF $SQUEUE_LOCAL"`, "b  /x/slurm.conf 1\n", ""},
		"arguments, stderr": {Runner{Limit: time.Minute}, `printf '<%s>' "$@"; echo ' skipped ' >&2`, "<--jobs=1><a b>", "skipped"},
		"input":             {Runner{Input: []byte("text")}, "cat", "text", ""},
	} {
		stdout, stderr, err := c.runner.Run(t.Context(), script(t, c.body), "--jobs=1", "a b")
		if err != nil || stdout != c.stdout || stderr != c.stderr {
			t.Errorf("%s: %q, %q, %v", name, stdout, stderr, err)
		}
	}
}

func TestErrors(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	for name, c := range map[string]struct {
		ctx    context.Context
		runner Runner
		body   string
		words  string
		exit   int
	}{
		"refused":      {t.Context(), Runner{}, "echo 'error: no'; echo 'Invalid\n job id' >&2; exit 7", "squeue --noheader --jobs=1: exit status 7: Invalid job id error: no", 7},
		"too long":     {t.Context(), Runner{Limit: 100 * time.Millisecond}, "sleep 60 & sleep 60", "squeue --noheader --jobs=1 took more than 100ms", 0},
		"too much":     {t.Context(), Runner{MaxOutput: 1000}, "exec yes", "squeue --noheader --jobs=1 printed more than the limit of 1000 bytes", 0},
		"too much err": {t.Context(), Runner{MaxOutput: 1000}, "exec yes >&2", "printed more than", 0},
		"ended":        {ended, Runner{Limit: time.Minute}, "exit 0", "context canceled", 0},
	} {
		begin := time.Now()
		_, _, err := c.runner.Run(c.ctx, script(t, c.body), "--noheader", "--jobs=1", "--all")
		var refused *ExitError
		if errors.As(err, &refused) != (c.exit != 0) || c.exit != 0 && refused.Exit != c.exit || errors.Is(err, kb.ErrUnavailable) != (c.exit == 0) {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil || !strings.Contains(err.Error(), c.words) || time.Since(begin) > 30*time.Second {
			t.Errorf("%s after %v: %v", name, time.Since(begin), err)
		}
	}
	if _, _, err := (Runner{}).Run(t.Context(), filepath.Join(t.TempDir(), "none")); !errors.Is(err, kb.ErrUnavailable) {
		t.Errorf("no program: %v", err)
	}
}

// Lines come whole, however the command writes them; what is more than the limit ends it, and a refusal quotes the output.
func TestLines(t *testing.T) {
	var lines []string
	keep := func(line []byte) { lines = append(lines, string(line)) }
	long := strings.Repeat("x", 100_000)
	err := Runner{}.Lines(t.Context(), keep, script(t, `printf 'one\ntw'; sleep 0.1; printf 'o\n\n'; printf '%s\nlast' "$1"`), long)
	if want := []string{"one\n", "two\n", "\n", long + "\n", "last"}; err != nil || !slices.Equal(lines, want) {
		t.Errorf("%d lines, %.100q, %v", len(lines), lines, err)
	}
	err = Runner{MaxOutput: 1000}.Lines(t.Context(), keep, script(t, "while :; do echo more; done"))
	if !errors.Is(err, kb.ErrUnavailable) || !strings.Contains(err.Error(), "limit of 1000 bytes") {
		t.Errorf("too much: %v", err)
	}
	err = Runner{}.Lines(t.Context(), keep, script(t, "echo Node n9 not found; exit 1"))
	if refused := new(ExitError); !errors.As(err, &refused) || refused.Text != "Node n9 not found" {
		t.Errorf("refused: %v", err)
	}
}
