// SPDX-License-Identifier: Apache-2.0

package emulated

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// Limit is the tests' time limit for conditions. It is generous for slow machines; conditions are noticed at once.
const Limit = 4 * time.Minute

// Trial is a cluster for one test, which fails when something is not as it must be.
type Trial struct {
	*Cluster
	T   testing.TB
	Ctx context.Context
}

// atOnce limits the number of concurrent clusters; each is mostly idle.
var atOnce = make(chan struct{}, 4)

// Start starts a cluster for a test, whose end stops it; a failed test keeps its logs in build/emulated. Change, if not
// nil, changes the options.
func Start(t testing.TB, change func(*Options)) *Trial {
	t.Helper()
	o, err := Defaults()
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile(`[^A-Za-z0-9]+`).ReplaceAllString(t.Name(), "-")
	o.Dir = filepath.Join(o.Repo, "build/emulated", o.Slurm, name)
	o.Progress = testLog{t}
	if change != nil {
		change(&o)
	}
	atOnce <- struct{}{}
	t.Cleanup(func() { <-atOnce })
	c, err := Up(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	s := &Trial{Cluster: c, T: t, Ctx: t.Context()}
	t.Cleanup(func() {
		if t.Failed() {
			s.Describe()
		}
		if err := c.Down(context.WithoutCancel(t.Context()), t.Failed()); err != nil {
			t.Errorf("cluster not down: %v", err)
		}
	})
	return s
}

type testLog struct{ t testing.TB }

func (l testLog) Write(p []byte) (int, error) {
	l.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

// With is the same cluster for a subtest.
func (s *Trial) With(t testing.TB) *Trial {
	return &Trial{Cluster: s.Cluster, T: t, Ctx: t.Context()}
}

// Describe prints what is needed to analyse a failure.
func (s *Trial) Describe() {
	s.T.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.Ctx), 20*time.Second)
	defer cancel()
	for _, argv := range [][]string{
		{"squeue", "--all"}, {"scontrol", "--oneliner", "show", "node"}, {"scontrol", "--oneliner", "show", "reservation"},
		{"kernelctl", "node", "list", "-o", "wide"}, {"kernelctl", "job", "list", "-o", "wide"},
	} {
		r, err := s.Exec(ctx, "root", argv...)
		s.T.Logf("%s: exit %d %v\n%s%s", strings.Join(argv, " "), r.Exit, err, r.Stdout, r.Stderr)
	}
	var boots strings.Builder
	for _, b := range s.Boots() {
		fmt.Fprintln(&boots, b)
	}
	s.T.Logf("boots:\n%s", boots.String())
	s.T.Logf("logs of all daemons: %s and %s", s.Path("var/log"), s.Path("nodes/*/log"))
}

// Try runs a command on the front-end.
func (s *Trial) Try(user string, argv ...string) Result {
	s.T.Helper()
	ctx, cancel := context.WithTimeout(s.Ctx, Limit)
	defer cancel()
	r, err := s.Exec(ctx, user, argv...)
	if err != nil {
		s.T.Fatalf("%s: %v", strings.Join(argv, " "), err)
	}
	return r
}

// Must runs a command that has to succeed and returns its output.
func (s *Trial) Must(user string, argv ...string) string {
	s.T.Helper()
	r := s.Try(user, argv...)
	if r.Exit != 0 {
		s.T.Fatalf("%s: exit %d: %s%s", strings.Join(argv, " "), r.Exit, r.Stdout, r.Stderr)
	}
	return strings.TrimSpace(r.Stdout)
}

// OK fails the test on an error.
func (s *Trial) OK(err error) {
	s.T.Helper()
	if err != nil {
		s.T.Fatal(err)
	}
}

// Within reports whether a condition becomes true in the time.
func (s *Trial) Within(limit time.Duration, done func() bool) bool {
	s.T.Helper()
	for end := time.Now().Add(limit); ; {
		began := time.Now()
		if done() {
			return true
		}
		if s.Ctx.Err() != nil || time.Now().After(end) {
			return false
		}
		pause(s.Ctx, pollPause(time.Since(began)))
	}
}

// Wait waits for a condition, and fails the test with the observed state on a timeout.
func (s *Trial) Wait(limit time.Duration, what string, done func() bool, seen ...func() string) {
	s.T.Helper()
	if s.Within(limit, done) {
		return
	}
	words := ""
	for _, look := range seen {
		words += "; " + look()
	}
	s.T.Fatalf("wait for %s: not within %v%s", what, limit, words)
}

// Never fails the test if a condition becomes true within the time.
func (s *Trial) Never(limit time.Duration, what string, bad func() bool) {
	s.T.Helper()
	if s.Within(limit, bad) {
		s.T.Fatalf("must not be: %s", what)
	}
}

// Kernelctl runs kernelctl with JSON output and decodes it.
func (s *Trial) Kernelctl(into any, args ...string) {
	s.T.Helper()
	out := s.Must("root", append(append([]string{"kernelctl"}, args...), "--output", "json")...)
	if err := json.Unmarshal([]byte(out), into); err != nil {
		s.T.Fatalf("kernelctl %v: %v\n%s", args, err, out)
	}
}

// File writes an executable file into a user's home.
func (s *Trial) File(user, name, text string) {
	s.T.Helper()
	s.OK(write(filepath.Join(s.Home(user), name), text, 0o755))
}

// Read returns a file of a user's home without its line end, "" if missing.
func (s *Trial) Read(user, name string) string {
	s.T.Helper()
	text, err := os.ReadFile(filepath.Join(s.Home(user), name))
	if err != nil && !os.IsNotExist(err) {
		s.T.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}
