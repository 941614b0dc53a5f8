// SPDX-License-Identifier: Apache-2.0

//go:build lab

package factory

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/filelock"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/graph"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/pipeline"
)

// running is a build that the test can kill.
type running struct {
	t                *testing.T
	cmd              *exec.Cmd
	out, complaints  bytes.Buffer
	ended            chan error
	hasEnded, killed bool
}

func (p place) begin(args ...string) *running {
	p.t.Helper()
	r := &running{t: p.t, cmd: p.command(args...), ended: make(chan error, 1)}
	r.cmd.Stdout, r.cmd.Stderr = &r.out, &r.complaints
	if err := r.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	go func() { r.ended <- r.cmd.Wait() }()
	p.t.Cleanup(r.kill)
	return r
}

// kill takes the whole process group away at once, as a machine's end would.
func (r *running) kill() {
	if r.hasEnded {
		return
	}
	_ = syscall.Kill(-r.cmd.Process.Pid, syscall.SIGKILL) // it may have ended by itself
	err := <-r.ended
	r.hasEnded = true
	r.killed = err != nil && r.cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL
}

// end waits for a build that has to succeed.
func (r *running) end() {
	r.t.Helper()
	err := <-r.ended
	r.hasEnded = true
	if err != nil {
		r.t.Fatalf("%v: %v\n%s", r.cmd.Args, err, r.complaints.String())
	}
}

// killedAt runs a build up to a point, kills it there, and looks at what is
// left: a step that nobody takes for done, and that is known to be killed.
func (p place) killedAt(step, point string, reached func() bool, args ...string) graph.StepStatus {
	p.t.Helper()
	build := p.begin(args...)
	wait(p.t, point, func() bool {
		if len(build.ended) > 0 {
			p.t.Fatalf("the build ended before %s:\n%s", point, build.complaints.String())
		}
		return reached()
	})
	build.kill()
	if !build.killed {
		p.t.Fatalf("the build had ended when it was to be killed:\n%s", build.complaints.String())
	}
	status := p.status("tiny")
	left, _ := status.Step(step)
	if status.State != graph.Killed || left.State != graph.Killed || left.Digest != "" {
		p.t.Fatalf("after the kill the build is %s:\n%s", status.State, say(status))
	}
	if _, err := pipeline.StoreIn(p.dir).Find(kindOf[step], left.Key); err == nil {
		p.t.Fatalf("step %s was killed and has a result", step)
	}
	return left
}

var kindOf = map[string]string{"traced": "kernel", "trace": "trace", "slim": "slim"}

// at reads how far the newest build is, in this process: often.
func (p place) at(step string) graph.StepStatus {
	status, err := pipeline.StoreIn(p.dir).Status("tiny", "")
	if err != nil {
		return graph.StepStatus{} // there is none yet
	}
	found, _ := status.Step(step)
	return found
}

// A build in an empty cache is killed three times on its way, and what comes
// out is what came out of the one that nobody disturbed.
func TestKilledAndResumed(t *testing.T) {
	undisturbed := slimmed(t)
	p := anew(t, "killed")

	t.Run("while it compiles", func(t *testing.T) {
		p := place{t, p.dir}
		far := func() bool { at := p.at("traced"); return at.State == graph.Running && at.Done >= 150 }
		killed := p.killedAt("traced", "150 files are compiled", far, making("tiny", "--until", "traced")...)
		p.slower()
		p.must(making("tiny", "--until", "traced")...)
		resumed := p.step("tiny", "traced")
		if resumed.Done == 0 || resumed.Done > killed.Total-50 {
			t.Errorf("of %d files %d were compiled before the kill, and %d after it", killed.Total, killed.Done, resumed.Done)
		}
		p.sameFile(undisturbed, "traced", build.ImageFile)
	})

	t.Run("while a guest runs", func(t *testing.T) {
		p := place{t, p.dir}
		booted := func() bool {
			at := p.at("trace")
			text, err := os.ReadFile(at.Log)
			return at.State == graph.Running && err == nil && bytes.Contains(text, []byte("Run /init as init process"))
		}
		killed := p.killedAt("trace", "the guest's first program runs", booted, making("tiny", "--until", "trace")...)
		folder := filepath.Dir(killed.Log)
		wait(t, "the guest is gone with its build", func() bool { return !inUse(t, folder) })
		p.must(making("tiny", "--until", "trace")...)
		for _, name := range []string{"traced-config", "traced"} {
			if !p.step("tiny", name).Cached {
				t.Errorf("%s was done again", name)
			}
		}
		if left, err := filepath.Glob(folder + "/partial-*"); err != nil || len(left) > 0 {
			t.Errorf("left over: %v %v", left, err)
		}
	})

	t.Run("while it slims, and then two builds at once", func(t *testing.T) {
		p := place{t, p.dir}
		second := func() bool {
			text, err := os.ReadFile(p.at("slim").Log)
			return err == nil && bytes.Count(text, []byte("trying a kernel")) == 2
		}
		p.killedAt("slim", "the second kernel is tried", second, making("tiny", "--until", "config")...)
		before := p.tried()
		if len(before) != 1 {
			t.Fatalf("there are answers of %d kernels: %v", len(before), before)
		}
		p.twoAtOnce(before)
		p.sameFile(undisturbed, "slim", "slim.config")
		p.sameFile(undisturbed, "config", build.ConfigFile)
	})
}

// slower makes it look as if a killed build had taken a minute longer. What was
// written in its last 20 seconds is not trusted, and with objects from ccache
// that would be all of it.
func (p place) slower() {
	p.t.Helper()
	locks, err := filepath.Glob(filepath.Join(p.dir, "compiled", "*.lock"))
	if err != nil || len(locks) == 0 {
		p.t.Fatalf("locks %v, %v", locks, err)
	}
	for _, path := range locks {
		// Make and the compilers outlive their builder for a moment.
		lock, err := filelock.Acquire(p.t.Context(), path, nil)
		if err != nil {
			p.t.Fatal(err)
		}
		lock.Release()
	}
	times := map[string]time.Time{}
	newest := time.Time{}
	err = filepath.WalkDir(filepath.Join(p.dir, "compiled"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		times[path] = info.ModTime()
		if info.ModTime().After(newest) {
			newest = info.ModTime()
		}
		return nil
	})
	if err != nil {
		p.t.Fatal(err)
	}
	for path, written := range times {
		if newest.Sub(written) < time.Second {
			continue
		}
		if err := os.Chtimes(path, time.Time{}, written.Add(-time.Minute)); err != nil {
			p.t.Fatal(err)
		}
	}
}

// twoAtOnce lets two builds do what is left of slimming: one does it, the other
// watches, and no kernel is tried twice.
func (p place) twoAtOnce(before []string) {
	p.t.Helper()
	first, second := p.begin(making("tiny", "--until", "config")...), p.begin(making("tiny", "--until", "config")...)
	first.end()
	second.end()
	runs, err := pipeline.StoreIn(p.dir).Runs("tiny")
	if err != nil || len(runs) < 2 {
		p.t.Fatalf("runs %v, %v", runs, err)
	}
	worked, watched := 0, 0
	for _, id := range runs[:2] {
		status, err := pipeline.StoreIn(p.dir).Status("tiny", id)
		if err != nil {
			p.t.Fatal(err)
		}
		switch step, _ := status.Step("slim"); {
		case step.State == graph.Done && step.Shared:
			watched++
		case step.State == graph.Done && !step.Cached:
			worked++
		default:
			p.t.Errorf("a build says of slimming: %+v", step)
		}
	}
	if worked != 1 || watched != 1 {
		p.t.Errorf("%d builds worked, %d watched", worked, watched)
	}
	after := p.tried()
	log := read(p.t, p.step("tiny", "slim").Log)
	if now := bytes.Count(log, []byte("trying a kernel")); now == 0 || now != len(after)-len(before) {
		p.t.Errorf("%d kernels were tried before the kill, %d after it, and %d in all: %v", len(before), now, len(after), after)
	}
}

// tried are the kernels of which slimming has the answer, by the
// options that were off.
func (p place) tried() []string {
	p.t.Helper()
	paths, err := filepath.Glob(filepath.Join(p.dir, "slimming", "*", "*.json"))
	if err != nil {
		p.t.Fatal(err)
	}
	var all []string
	for _, path := range paths {
		var answer struct{ Off []string }
		if err := json.Unmarshal(read(p.t, path), &answer); err != nil {
			p.t.Fatal(err)
		}
		if len(answer.Off) > 0 {
			all = append(all, strings.Join(answer.Off, " "))
		}
	}
	return all
}

// sameFile compares a file with that of another place.
func (p place) sameFile(other place, step, name string) {
	p.t.Helper()
	if !bytes.Equal(p.file("tiny", step, name), place{p.t, other.dir}.file("tiny", step, name)) {
		p.t.Errorf("%s of step %s is not that of the build which nobody disturbed", name, step)
	}
}

// inUse tells whether the command line of any process names the folder.
func inUse(t *testing.T, folder string) bool {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range lines {
		if text, err := os.ReadFile(path); err == nil && bytes.Contains(text, []byte(folder)) {
			return true
		}
	}
	return false
}

// copySteps gives a place the results of another one, without those of a key.
func copySteps(t *testing.T, from, to place, without string) {
	t.Helper()
	results, err := filepath.Glob(filepath.Join(from.dir, "graph", "steps", "*", "*", "result"))
	if err != nil {
		t.Fatal(err)
	}
	for _, result := range results {
		at := filepath.Dir(result)
		name, err := filepath.Rel(from.dir, at)
		if err != nil {
			t.Fatal(err)
		}
		target := filepath.Join(to.dir, name)
		if filepath.Base(at) == without {
			continue
		}
		if err := os.RemoveAll(target); err != nil {
			t.Fatal(err)
		}
		if err := os.CopyFS(target, os.DirFS(at)); err != nil {
			t.Fatal(err)
		}
	}
}
