// SPDX-License-Identifier: Apache-2.0

//go:build lab

package suites

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/kernelbroker/kernelbroker/tests/lab"
	"github.com/kernelbroker/kernelbroker/tests/support/slurmroot"
)

// Limits of waiting. They are generous: a slow machine must not fail a test,
// and a condition that holds is noticed at once.
const (
	switchLimit = 10 * time.Minute
	settleLimit = 10 * time.Minute
)

// cluster is a lab with the product in it, for one test.
type cluster struct {
	*lab.Lab
	t   *testing.T
	ctx context.Context
}

// start brings a cluster up on the quick stock kernel. The test's end brings
// it down; a failed test keeps its logs. Each cluster has its own namespaces, and
// waits most of its time, so that tests run beside each other.
func start(t *testing.T, change func(*lab.Options)) *cluster {
	t.Helper()
	t.Parallel()
	name := regexp.MustCompile(`[^A-Za-z0-9]+`).ReplaceAllString(t.Name(), "-")
	dir, err := filepath.Abs(filepath.Join("../../build/lab/suites", slurmroot.Wanted(), name))
	if err != nil {
		t.Fatal(err)
	}
	if err := lab.Down(t.Context(), dir, false); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Logf("an earlier lab in %s: %v", dir, err)
	}
	o := lab.Options{Dir: dir, Kernel: "suite-stock", Nodes: 2, Progress: testLog{t}, Owned: true, ReadyTimeout: settleLimit}
	o.Slurm.ReturnToService = 1
	// Some jobs, such as heterogeneous ones, are only started by backfill, which runs every 30 s by default.
	o.Slurm.SchedulerParameters = []string{"bf_interval=2"}
	o.Slurm.Set = map[string]string{"MinJobAge": "3600"}
	if change != nil {
		change(&o)
	}
	l, err := lab.Up(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{Lab: l, t: t, ctx: t.Context()}
	t.Cleanup(func() {
		if t.Failed() {
			c.describe()
		}
		if err := l.Down(context.WithoutCancel(t.Context()), t.Failed()); err != nil {
			t.Errorf("lab not down: %v", err)
		}
	})
	return c
}

type testLog struct{ t *testing.T }

func (l testLog) Write(p []byte) (int, error) {
	l.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

// describe prints what is needed to analyse a failure.
func (c *cluster) describe() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), 20*time.Second)
	defer cancel()
	for _, argv := range [][]string{
		{"squeue", "--all"}, {"scontrol", "--oneliner", "show", "node"}, {"kernelctl", "node", "list"},
		{"kernelctl", "job", "list"}, {"kernelctl", "profile", "list"},
	} {
		r, err := c.Exec(ctx, "root", argv...)
		c.t.Logf("%s: exit %d %v\n%s%s", strings.Join(argv, " "), r.Exit, err, r.Stdout, r.Stderr)
	}
}

// try runs a command on the front-end.
func (c *cluster) try(user string, argv ...string) lab.Result {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.ctx, switchLimit)
	defer cancel()
	r, err := c.Exec(ctx, user, argv...)
	if err != nil {
		c.t.Fatalf("%s: %v", strings.Join(argv, " "), err)
	}
	return r
}

// must runs a command that has to succeed and returns its output.
func (c *cluster) must(user string, argv ...string) string {
	c.t.Helper()
	r := c.try(user, argv...)
	if r.Exit != 0 {
		c.t.Fatalf("%s: exit %d: %s%s", strings.Join(argv, " "), r.Exit, r.Stdout, r.Stderr)
	}
	return strings.TrimSpace(r.Stdout)
}

// refused runs a command that has to fail with all of the texts on stderr.
func (c *cluster) refused(user string, words []string, argv ...string) {
	c.t.Helper()
	r := c.answered(user, argv...)
	if r.Exit == 0 {
		c.t.Fatalf("%s: accepted: %s", strings.Join(argv, " "), r.Stdout)
	}
	for _, word := range words {
		if !strings.Contains(r.Stderr, word) {
			c.t.Errorf("%s: %q is not in its answer:\n%s", strings.Join(argv, " "), word, r.Stderr)
		}
	}
}

// answered repeats a command while its submit succeeds only because the broker's answer was late.
func (c *cluster) answered(user string, argv ...string) lab.Result {
	c.t.Helper()
	var r lab.Result
	c.wait(settleLimit, "the broker's answer at submit", func() bool {
		r = c.try(user, argv...)
		late := strings.Contains(r.Stderr, "did not answer within")
		if words := strings.Fields(r.Stdout); late && r.Exit == 0 && len(words) > 0 {
			c.must(user, "scancel", words[len(words)-1])
		}
		return !late
	})
	return r
}

// wait waits for a condition and fails the test on a timeout.
func (c *cluster) wait(limit time.Duration, what string, done func() bool) {
	c.t.Helper()
	err := lab.Wait(c.ctx, limit, what, func() (bool, error) { return done(), nil })
	if err != nil {
		c.t.Fatal(err)
	}
}

// kernelctl runs a command with JSON output and decodes it.
func (c *cluster) kernelctl(into any, args ...string) {
	c.t.Helper()
	out := c.must("alice", append(append([]string{"kernelctl"}, args...), "--output", "json")...)
	if err := json.Unmarshal([]byte(out), into); err != nil {
		c.t.Fatalf("kernelctl %v: %v\n%s", args, err, out)
	}
}

// kernelFolder adds a kernel that no profile of the catalog has, and returns its folder as the front-end sees it.
func (c *cluster) kernelFolder(name string) string {
	c.t.Helper()
	from := filepath.Join(c.Options().Kernels, name)
	if err := os.CopyFS(filepath.Join(c.CatalogDir(), "kernels", name), os.DirFS(from)); err != nil {
		c.t.Fatalf("kernel %s: %v (make kernels KERNELS=%s)", name, err, name)
	}
	return "/run/lab/catalog/kernels/" + name
}
