// SPDX-License-Identifier: Apache-2.0

//go:build lab

package factory

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/filelock"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/graph"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/pipeline"
	"github.com/kernelbroker/kernelbroker/tests/lab"
)

const (
	catalog = "testdata/catalog"
	top     = "../.."
	// limit of waiting: a slow machine must not fail a test.
	limit = 40 * time.Minute
)

// Of the project: its cache, and the folder in it that is the suite's.
var project, suite string

func TestMain(m *testing.M) {
	code := 1
	lock, err := prepare(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, "suite of the factory:", err)
	} else {
		code = m.Run()
		lock.Release()
	}
	os.Exit(code)
}

// keepVariable in the environment has the suite use what an older code built: for
// who changes the suite itself.
const keepVariable = "KB_FACTORY_SUITE_KEEP"

// prepare finds the suite's folder and empties it when what it holds was made
// by other code. The lock keeps a second run out of it.
func prepare(ctx context.Context) (*filelock.Lock, error) {
	var err error
	if project, err = build.DefaultCacheDir(); err != nil {
		return nil, err
	}
	// The compiler sees real paths, and counting objects hold theirs.
	if err := os.MkdirAll(filepath.Join(project, "suites"), 0o755); err != nil {
		return nil, err
	}
	if project, err = filepath.EvalSymlinks(project); err != nil {
		return nil, err
	}
	suite = filepath.Join(project, "suites", "factory")
	lock, err := filelock.Acquire(ctx, suite+".lock", func() { fmt.Println("another run of this suite is at work: waiting") })
	if err != nil {
		return nil, err
	}
	now, err := stamp()
	if err != nil {
		return nil, err
	}
	file := filepath.Join(suite, "stamp")
	if before, err := os.ReadFile(file); err == nil && (string(before) == now || os.Getenv(keepVariable) != "") {
		fmt.Println("what was built for the same code is used again:", suite)
		return lock, nil
	}
	return lock, errors.Join(os.RemoveAll(suite), os.MkdirAll(suite, 0o755), os.WriteFile(file, []byte(now), 0o644))
}

// stamp is the digest of all that decides on what a build gives, besides what
// the builds' own digests are of.
func stamp() (string, error) {
	all := map[string]string{}
	for _, dir := range []string{top + "/kernel-broker/factory", top + "/kernel-broker/cli", top + "/tests/workloads", "testdata"} {
		digest, err := graph.TreeDigest(dir)
		if err != nil {
			return "", err
		}
		all[dir] = digest
	}
	return graph.ValueDigest(all)
}

// place is a cache folder for builds.
type place struct {
	t   *testing.T
	dir string
}

// open makes a cache folder. It has its own results and objects, and the
// project's sources and compiled files.
func open(t *testing.T, name string) place {
	t.Helper()
	p := place{t: t, dir: filepath.Join(suite, name)}
	if err := os.MkdirAll(p.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, shared := range []string{"source", "ccache", "distribution"} {
		if err := os.MkdirAll(filepath.Join(project, shared), 0o755); err != nil {
			t.Fatal(err)
		}
		err := os.Symlink(filepath.Join(project, shared), filepath.Join(p.dir, shared))
		if err != nil && !errors.Is(err, os.ErrExist) {
			t.Fatal(err)
		}
	}
	return p
}

// anew is an empty cache folder, always at the same path.
func anew(t *testing.T, name string) place {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(suite, name)); err != nil {
		t.Fatal(err)
	}
	return open(t, name)
}

// built is the folder that make builds into.
func built() string { return cmp.Or(os.Getenv("KB_BUILD"), top+"/build") }

// said is how a program ended.
type said struct {
	out, err string
	exit     int
}

// command prepares kernelctl, in a process group of its own.
func (p place) command(args ...string) *exec.Cmd {
	p.t.Helper()
	program, err := filepath.Abs(built() + "/bin/kernelctl")
	if err == nil {
		_, err = os.Stat(program)
	}
	if err != nil {
		p.t.Fatalf("%v: make build", err)
	}
	cmd := exec.CommandContext(p.t.Context(), program, args...)
	cmd.Env = append(os.Environ(), "KB_CACHE="+p.dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	return cmd
}

func (p place) kernelctl(args ...string) said {
	p.t.Helper()
	var out, complaints bytes.Buffer
	cmd := p.command(args...)
	cmd.Stdout, cmd.Stderr = &out, &complaints
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		p.t.Fatalf("kernelctl %v: %v", args, err)
	}
	return said{out: out.String(), err: complaints.String(), exit: cmd.ProcessState.ExitCode()}
}

// must runs kernelctl, which has to succeed.
func (p place) must(args ...string) said {
	p.t.Helper()
	s := p.kernelctl(args...)
	if s.exit != 0 {
		p.t.Fatalf("kernelctl %s: exit %d\n%s", strings.Join(args, " "), s.exit, s.err)
	}
	return s
}

// making is the command line of a build that needs no broker.
func making(kernel string, more ...string) []string {
	return append([]string{"kernel", "build", kernel, "--catalog", catalog, "--publish", "never"}, more...)
}

// candidate is what a build in JSON ended in.
func (p place) candidate(args ...string) pipeline.Candidate {
	p.t.Helper()
	var c pipeline.Candidate
	decode(p.t, p.must(append(args, "--output", "json")...).out, &c)
	return c
}

func decode(t *testing.T, text string, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), into); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
}

// status of the newest build.
func (p place) status(kernel string) graph.Status {
	p.t.Helper()
	var s graph.Status
	decode(p.t, p.must("kernel", "build", "status", kernel, "--output", "json").out, &s)
	return s
}

// step of the newest build.
func (p place) step(kernel, name string) graph.StepStatus {
	p.t.Helper()
	status := p.status(kernel)
	step, has := status.Step(name)
	if !has {
		p.t.Fatalf("the build of %q has no step %q: %+v", kernel, name, status)
	}
	return step
}

// file reads one of the files that a step of the newest build left.
func (p place) file(kernel, step, name string) []byte {
	p.t.Helper()
	return read(p.t, filepath.Join(p.step(kernel, step).Dir, name))
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func wait(t *testing.T, what string, done func() bool) {
	t.Helper()
	if err := lab.Wait(t.Context(), limit, what, func() (bool, error) { return done(), nil }); err != nil {
		t.Fatal(err)
	}
}

// slimmed is the place where the kernel was slimmed without disturbance.
func slimmed(t *testing.T) place {
	t.Helper()
	p := open(t, "whole")
	p.must(making("tiny", "--until", "config")...)
	return p
}

// whole is the same place with all that there is to do done, and what it came
// to.
func whole(t *testing.T) (place, kernel) {
	t.Helper()
	p := open(t, "whole")
	builtOnce.Do(func() {
		began := time.Now()
		builtKernel = kernel{t, p.candidate(making("tiny")...), p.status("tiny")}
		t.Logf("all of it took %s", time.Since(began).Round(time.Second))
	})
	if builtKernel.Name == "" {
		t.Fatal("there is no kernel to try this with: see the first test that failed")
	}
	return p, kernel{t, builtKernel.Candidate, builtKernel.status}
}

// kernel is a candidate and the status of the build that made it.
type kernel struct {
	t *testing.T
	pipeline.Candidate
	status graph.Status
}

func (k kernel) step(name string) graph.StepStatus {
	k.t.Helper()
	step, has := k.status.Step(name)
	if !has || step.Dir == "" {
		k.t.Fatalf("the build has no result of %q:\n%s", name, say(k.status))
	}
	return step
}

// file reads one of the files that a step left.
func (k kernel) file(step, name string) []byte {
	k.t.Helper()
	return read(k.t, filepath.Join(k.step(step).Dir, name))
}

var (
	builtOnce   sync.Once
	builtKernel kernel
)

// say lists the steps of a build, for a test that failed.
func say(s graph.Status) string {
	var text strings.Builder
	for _, step := range s.Steps {
		fmt.Fprintf(&text, "%s: %s, %d of %d, before %t, by another %t\n", step.Name, step.State, step.Done, step.Total, step.Cached, step.Shared)
	}
	return text.String()
}
