// SPDX-License-Identifier: Apache-2.0

//go:build lab

package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// testKernel is the quick kernel if built, otherwise Debian's.
func testKernel(t *testing.T) string {
	if k := os.Getenv("KBLAB_TEST_KERNEL"); k != "" {
		return k
	}
	repo, err := findRepo()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(repo, "build/kernels/suite-stock/bzImage")); err == nil {
		return "suite-stock"
	}
	return "stock"
}

type progressLog struct{ t *testing.T }

func (p progressLog) Write(b []byte) (int, error) {
	p.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

// up starts a lab and checks at the end of the test that nothing of it is left on the host.
func up(t *testing.T, o Options) *Lab {
	t.Helper()
	before := hostView(t)
	o.Dir = filepath.Join(t.TempDir(), "lab")
	o.Kernel = testKernel(t)
	o.Slurm.ReturnToService = 2 // a reset node is to come back by itself
	o.Progress = progressLog{t}
	l, err := Up(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if err := l.Down(ctx, false); err != nil {
			t.Error(err)
		}
		checkNothingLeft(t, l, before)
		for _, f := range networks[l].pins {
			_ = f.Close() // it was only held
		}
	})
	return l
}

// view is the state of the host that a lab could leave changed.
type view struct{ mounts, interfaces []string }

func hostView(t *testing.T) view {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	links, err := os.ReadDir("/sys/class/net")
	if err != nil {
		t.Fatal(err)
	}
	v := view{mounts: strings.Split(string(mounts), "\n")}
	for _, l := range links {
		v.interfaces = append(v.interfaces, l.Name())
	}
	return v
}

func checkNothingLeft(t *testing.T, l *Lab, before view) {
	t.Helper()
	if pids, err := l.Processes(); err != nil || len(pids) > 0 {
		t.Errorf("processes left: %v, %v", pids, err)
	}
	if name := inNetwork(t, networks[l].name); name != "" {
		t.Errorf("process %s is left in the lab's network namespace", name)
	}
	if _, err := os.Stat(l.Dir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("folder left: %v", err)
	}
	after := hostView(t)
	if !slices.Equal(before.interfaces, after.interfaces) {
		t.Errorf("interfaces: %v, before %v", after.interfaces, before.interfaces)
	}
	for _, m := range after.mounts {
		if strings.Contains(m, l.Dir()) {
			t.Errorf("mount left: %s", m)
		}
	}
	if len(before.mounts) != len(after.mounts) {
		t.Errorf("mounts: %d, before %d", len(after.mounts), len(before.mounts))
	}
}

// network is a lab's, by its name. The pins keep the lab's namespaces until the test has ended: otherwise their numbers
// could be reused by another lab.
type network struct {
	name string
	pins []*os.File
}

// networks notes each lab's while it is up.
var networks = map[*Lab]network{}

func noteNetwork(t *testing.T, l *Lab) {
	t.Helper()
	of := "/proc/" + strconv.Itoa(l.state.HolderPID) + "/ns/"
	var n network
	for _, kind := range []string{"pid", "net"} {
		f, err := os.Open(of + kind)
		if err != nil {
			t.Fatal(err)
		}
		n.pins = append(n.pins, f)
	}
	var err error
	if n.name, err = os.Readlink(of + "net"); err != nil {
		t.Fatal(err)
	}
	networks[l] = n
}

// inNetwork returns a process that is in the network namespace, if any.
func inNetwork(t *testing.T, name string) string {
	t.Helper()
	if name == "" {
		t.Error("the lab's network namespace was not noted")
	}
	links, err := filepath.Glob("/proc/[0-9]*/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		if got, err := os.Readlink(l); err == nil && got == name {
			return strings.Split(l, "/")[2]
		}
	}
	return ""
}

// run runs a command on the front-end that must succeed.
func run(t *testing.T, l *Lab, user string, argv ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := l.Exec(ctx, user, argv...)
	if err != nil || r.Exit != 0 {
		t.Fatalf("%s: %q: exit %d, %v\n%s%s", user, argv, r.Exit, err, r.Stdout, r.Stderr)
	}
	return r.Stdout
}

func lines(s string) []string {
	l := strings.Fields(s)
	slices.Sort(l)
	return l
}

// bootOf is a node's boot id, or empty if it does not answer.
func bootOf(t *testing.T, n Node) string {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	r, err := n.Exec(ctx, "cat", "/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(r.Stdout)
}

// liveBoot is the boot id of a running node, however long it takes to answer.
func liveBoot(t *testing.T, n Node) string {
	t.Helper()
	boot := ""
	if err := Wait(t.Context(), 2*time.Minute, n.Name()+" to answer", func() (bool, error) {
		boot = bootOf(t, n)
		return boot != "", nil
	}); err != nil {
		t.Fatal(err)
	}
	return boot
}

func waitReboot(t *testing.T, n Node, old string) {
	t.Helper()
	err := Wait(t.Context(), 2*time.Minute, n.Name()+" on a new boot", func() (bool, error) {
		now := bootOf(t, n)
		return now != "" && now != old, nil
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, tail(n.Console(), 20))
	}
}

// TestLab uses a lab like a user.
func TestLab(t *testing.T) {
	l := up(t, Options{Nodes: 2, WithoutProduct: true})
	noteNetwork(t, l)
	t.Run("jobs", func(t *testing.T) { testJobs(t, l) })
	t.Run("exec", func(t *testing.T) { testExec(t, l) })
	t.Run("pause", func(t *testing.T) { testPause(t, l) })
	t.Run("reset", func(t *testing.T) { testReset(t, l) })
	t.Run("power", func(t *testing.T) { testPower(t, l) })
	t.Run("slurmctld", func(t *testing.T) { testSlurmctld(t, l) })
}

func testJobs(t *testing.T, l *Lab) {
	users := []string{"alice", "bob"}
	if l.state.Mode == ModeSingle {
		users = users[:1]
	}
	for _, user := range users {
		if got := lines(run(t, l, user, "srun", "-N2", "hostname")); !slices.Equal(got, []string{"n1", "n2"}) {
			t.Errorf("%s: srun -N2 hostname: %v", user, got)
		}
		if got := lines(run(t, l, user, "srun", "-N2", "id", "-un")); !slices.Equal(got, []string{user, user}) {
			t.Errorf("%s: srun -N2 id -un: %v", user, got)
		}
		release := l.Kernel().Release
		if got := lines(run(t, l, user, "srun", "-N2", "uname", "-r")); !slices.Equal(got, []string{release, release}) {
			t.Errorf("%s: srun -N2 uname -r: %v, want %s", user, got, release)
		}
	}
	// A batch job whose steps span nodes: job steps talk to each other directly.
	script := "#!/bin/bash\nsrun -N2 hostname >steps\n"
	if err := os.WriteFile(filepath.Join(l.Home("alice"), "job.sh"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	batch(t, l, "-N2", "job.sh")
	if got := lines(run(t, l, "alice", "cat", "steps")); !slices.Equal(got, []string{"n1", "n2"}) {
		t.Errorf("srun -N2 in a batch job: %v", got)
	}
	if owner := strings.TrimSpace(run(t, l, "alice", "stat", "-c", "%U", "steps")); owner != "alice" {
		t.Errorf("the job's file belongs to %q", owner)
	}
}

// batch submits a job and waits until it has completed. (sbatch --wait polls rarely.)
func batch(t *testing.T, l *Lab, args ...string) {
	t.Helper()
	id := strings.TrimSpace(run(t, l, "alice", append([]string{"sbatch", "--parsable"}, args...)...))
	state := ""
	err := Wait(t.Context(), 2*time.Minute, "job "+id, func() (bool, error) {
		state = strings.TrimSpace(run(t, l, "alice", "squeue", "-h", "-t", "all", "-o", "%T", "-j", id))
		return state == "COMPLETED" || state == "FAILED" || state == "CANCELLED", nil
	})
	if err != nil || state != "COMPLETED" {
		t.Fatalf("job %s is %s: %v", id, state, err)
	}
}

func testExec(t *testing.T, l *Lab) {
	r, err := l.Exec(t.Context(), "alice", "sh", "-c", "echo out; echo err >&2; exit 7")
	if err != nil || r != (Result{Stdout: "out\n", Stderr: "err\n", Exit: 7}) {
		t.Errorf("front-end: %+v, %v", r, err)
	}
	r, err = l.Node(2).Exec(t.Context(), "sh", "-c", "hostname; echo \"it's\" >&2; exit 9")
	if err != nil || r != (Result{Stdout: "n2\n", Stderr: "it's\n", Exit: 9}) {
		t.Errorf("node: %+v, %v", r, err)
	}
	if _, err := l.Exec(t.Context(), "nobody-here", "true"); err == nil {
		t.Error("an unknown user ran a command")
	}
	// A cancelled command ends with all its children.
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := l.Exec(ctx, "alice", "sh", "-c", "trap : TERM; sleep 4711 & sleep 4711; sleep 4711"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("cancelled command: %v", err)
	}
	err = Wait(t.Context(), time.Minute, "the end of a cancelled command", func() (bool, error) {
		r, err := l.Exec(t.Context(), l.root(), "pgrep", "-f", "sleep 4711")
		return r.Exit == 1, err
	})
	if err != nil {
		t.Error(err)
	}
}

func testPause(t *testing.T, l *Lab) {
	n := l.Node(1)
	old := liveBoot(t, n)
	if err := n.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := bootOf(t, n); got != "" {
		t.Errorf("a paused node answered: boot %s", got)
	}
	if err := n.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	if now := liveBoot(t, n); now != old {
		t.Errorf("boot %s after a pause, before %s", now, old)
	}
}

func testReset(t *testing.T, l *Lab) {
	n, other := l.Node(1), l.Node(2)
	old, still := liveBoot(t, n), liveBoot(t, other)
	if err := n.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	waitReboot(t, n, old)
	if now := liveBoot(t, other); now != still {
		t.Errorf("n2 was reset, too: boot %s, before %s", now, still)
	}
	ready(t, l)
}

// ready waits until Slurm uses both nodes again, by a job on them.
func ready(t *testing.T, l *Lab) {
	t.Helper()
	if err := l.WaitIdle(t.Context(), 5*time.Minute); err != nil {
		t.Fatal(err)
	}
	// slurmctld does not notice a reset: its nodes are idle before their slurmd
	// is up.
	err := Wait(t.Context(), 2*time.Minute, "a job on both nodes", func() (bool, error) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		r, err := l.Exec(ctx, "alice", "srun", "-N2", "hostname")
		return err == nil && r.Exit == 0 && slices.Equal(lines(r.Stdout), []string{"n1", "n2"}), nil
	})
	if err != nil {
		t.Error(err)
	}
}

func testPower(t *testing.T, l *Lab) {
	n := l.Node(2)
	old := liveBoot(t, n)
	if err := n.PowerOff(t.Context()); err != nil {
		t.Fatal(err)
	}
	if on, err := n.On(t.Context()); on || err != nil {
		t.Errorf("power after off: %v, %v", on, err)
	}
	if err := n.PowerOff(t.Context()); err == nil {
		t.Error("power off twice was no error")
	}
	if err := n.PowerOn(t.Context()); err != nil {
		t.Fatal(err)
	}
	waitReboot(t, n, old)
	ready(t, l)
	if strings.Count(string(mustRead(t, n.Console())), "n2 is up on") != 2 {
		t.Error("the console does not have both boots")
	}
}

func mustRead(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func testSlurmctld(t *testing.T, l *Lab) {
	id := strings.TrimSpace(run(t, l, "alice", "sbatch", "--parsable", "--hold", "--wrap", "true"))
	restart := func(how string, sig syscall.Signal) {
		t.Helper()
		if err := l.RestartSlurmctld(t.Context(), sig); err != nil {
			t.Fatalf("%s: %v", how, err)
		}
		if got := strings.TrimSpace(run(t, l, "alice", "squeue", "-h", "-t", "PENDING", "-o", "%i")); got != id {
			t.Errorf("%s: jobs %q, want %s", how, got, id)
		}
	}
	restart("in order", syscall.SIGTERM)
	// A crash may lose a job whose state was not saved, but the first restart saved this one.
	restart("after a crash", syscall.SIGKILL)
	// A slurmctld that cannot end by itself, as if it waited for a lost hook.
	pids, err := l.Processes()
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		if name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); err == nil && string(name) == "slurmscriptd\n" {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
	}
	restart("without its helper", syscall.SIGTERM)
	run(t, l, "alice", "scancel", id)
	ready(t, l)
}

// TestDownAfterTheHolderWasKilled: a lab without its first process has ended, and down only tidies.
func TestDownAfterTheHolderWasKilled(t *testing.T) {
	l := up(t, Options{Nodes: 1, NoWait: true, WithoutProduct: true})
	noteNetwork(t, l)
	if err := syscall.Kill(l.state.HolderPID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	err := Wait(t.Context(), time.Minute, "the end of the lab", func() (bool, error) {
		pids, err := l.Processes()
		return len(pids) == 0, err
	})
	if err != nil {
		t.Error(err)
	}
	if _, err := Open(l.Dir()); !errors.Is(err, ErrDown) {
		t.Errorf("open: %v, want ErrDown", err)
	}
	if _, err := l.Exec(t.Context(), "alice", "true"); !errors.Is(err, ErrDown) {
		t.Errorf("exec: %v, want ErrDown", err)
	}
}

// TestTwoLabs checks that labs side by side do not see each other.
func TestTwoLabs(t *testing.T) {
	a := up(t, Options{Nodes: 1, WithoutProduct: true})
	noteNetwork(t, a)
	b := up(t, Options{Nodes: 1, WithoutProduct: true})
	noteNetwork(t, b)
	if x, y := liveBoot(t, a.Node(1)), liveBoot(t, b.Node(1)); x == y {
		t.Errorf("boot ids %q and %q", x, y)
	}
	for _, l := range []*Lab{a, b} {
		if got := strings.TrimSpace(run(t, l, "alice", "srun", "hostname")); got != "n1" {
			t.Errorf("srun hostname: %q", got)
		}
	}
	run(t, a, "alice", "touch", "mine")
	if r, err := b.Exec(t.Context(), "alice", "test", "-e", "mine"); err != nil || r.Exit != 1 {
		t.Errorf("a file of the other lab's home: %+v, %v", r, err)
	}
}
