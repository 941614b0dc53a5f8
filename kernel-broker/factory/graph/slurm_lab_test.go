// SPDX-License-Identifier: Apache-2.0

//go:build lab

package graph

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/kernelbroker/kernelbroker/tests/support/slurmtest"
)

// newRealWorld is a slurmWorld without the fake programs.
func newRealWorld(t *testing.T) *slurmWorld {
	t.Helper()
	return &slurmWorld{newWorld(t), ""}
}

// TestRealSlurm does with Slurm itself what the tests with the fake do.
func TestRealSlurm(t *testing.T) {
	slurmtest.Start(t)
	t.Run("results", func(t *testing.T) {
		w := newRealWorld(t)
		results, err := w.runSlurm(t.Context(), "", "x")
		if err != nil {
			t.Fatal(err)
		}
		if text := read(t, filepath.Join(results["b"].Files(), "text")); text != "x and b" {
			t.Errorf("b is %q", text)
		}
	})
	t.Run("failure", func(t *testing.T) {
		_, err := newRealWorld(t).runSlurm(t.Context(), "break", "x")
		if err == nil || !strings.Contains(err.Error(), `step "b": it is broken`) {
			t.Error(err)
		}
	})
	t.Run("death", func(t *testing.T) {
		_, err := newRealWorld(t).runSlurm(t.Context(), "die", "x")
		var died *JobError
		if !errors.As(err, &died) || died.State != "FAILED" {
			t.Error(err)
		}
	})
	t.Run("cancel", func(t *testing.T) {
		w := newRealWorld(t)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() {
			if _, err := w.runSlurm(ctx, "wait", "x"); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
		until(t, "b works", func() bool { return w.began() == "a b" })
		cancel()
		running.Wait()
		until(t, "no job is left", func() bool {
			out, err := exec.Command("squeue", "-h").Output()
			return err == nil && len(out) == 0
		})
	})
}
