// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect/bpf"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect/cgroup"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a collector and its session.
type fake struct {
	name    profiling.Collector
	check   error
	start   error
	read    error
	stop    error
	files   int
	stopped int
	closed  int
	tended  int
	spent   bpf.Cost
	missing []bpf.Missing
}

func (f *fake) Name() profiling.Collector { return f.name }
func (f *fake) Check() error              { return f.check }
func (f *fake) Start(Target) (Session, error) {
	if f.start != nil {
		return nil, f.start
	}
	return f, nil
}
func (f *fake) Missing() []bpf.Missing   { return f.missing }
func (f *fake) Spent() (bpf.Cost, error) { return f.spent, nil }
func (f *fake) Tend() error              { f.tended++; return nil }
func (f *fake) Stop() error              { f.stopped++; return f.stop }
func (f *fake) Close() error             { f.closed++; return nil }

func (f *fake) Read(result *profiling.Result) error {
	if f.stopped > 0 && f.closed > 0 {
		return errors.New("read after close")
	}
	result.IO = &profiling.IO{}
	for i := range f.files {
		result.IO.Files = append(result.IO.Files, profiling.File{Path: fmt.Sprintf("/long/path/%d", i)})
	}
	result.Syscalls = &profiling.Syscalls{Calls: []profiling.Syscall{{Name: "read", Count: 3}}}
	return f.read
}

var quiet = slog.New(slog.DiscardHandler)

// begin starts a run on an arbitrary cgroup with hand-made sessions: without privileges a test cannot open a cgroup.
func begin(t *testing.T, change func(*Request), fakes ...*fake) *Run {
	t.Helper()
	request := Request{Job: 7, Node: "n1", Folder: filepath.Join(t.TempDir(), "run"), Cgroup: t.TempDir()}
	if change != nil {
		change(&request)
	}
	r, err := prepare(request, quiet)
	if err != nil {
		t.Fatal(err)
	}
	r.meter.enable = func() (io.Closer, error) { return io.NopCloser(nil), nil }
	for _, f := range fakes {
		if err := r.startOne(f); err != nil {
			r.refused(f.name, "", err)
		}
	}
	go r.work()
	return r
}

func end(t *testing.T, r *Run, why string) profiling.Result {
	t.Helper()
	r.Stop(why)
	result, err := r.Result(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func inFolder(t *testing.T, r *Run) profiling.Result {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(r.request.Folder, kb.ResultFile))
	if err != nil {
		t.Fatal(err)
	}
	result, err := profiling.ParseResult(content)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func TestRunWritesAndReleases(t *testing.T) {
	f := &fake{name: profiling.CollectIO, files: 3}
	r := begin(t, nil, f)
	result := end(t, r, "")
	if f.stopped == 0 || f.closed != 1 {
		t.Errorf("stopped %d, closed %d times", f.stopped, f.closed)
	}
	if len(result.Partial) != 0 || len(result.IO.Files) != 3 || len(inFolder(t, r).IO.Files) != 3 {
		t.Errorf("result is %+v", result)
	}
	if node := result.Nodes[0]; node.Name != "n1" || node.End.Before(node.Begin) {
		t.Errorf("node is %+v", node)
	}
	r.Stop("a repetition does nothing")
}

func TestRunStoppedEarlyIsPartial(t *testing.T) {
	r := begin(t, nil, &fake{name: profiling.CollectIO})
	end(t, r, "stopped early")
	want := profiling.Partial{Node: "n1", Why: "stopped early"}
	if got := inFolder(t, r).Partial; len(got) != 1 || got[0] != want {
		t.Errorf("partial is %+v", got)
	}
}

// Of another cgroup of the job's name the collectors count nothing, so the run ends, and the keeper begins the next.
func TestCgroupRemovedBeforeTheJob(t *testing.T) {
	path := filepath.Join(t.TempDir(), "job_7")
	events := filepath.Join(path, "cgroup.events")
	if err := errors.Join(os.Mkdir(path, 0o755), os.WriteFile(events, []byte("populated 0\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	r, err := prepare(Request{Job: 7, Node: "n1", Folder: t.TempDir()}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	r.target.Cgroup = &cgroup.Group{Path: path, ID: info.Sys().(*syscall.Stat_t).Ino}
	go r.work()
	if err := errors.Join(os.Rename(path, path+".removed"), os.Mkdir(path, 0o755), os.WriteFile(events, []byte("populated 1\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	result, err := r.Result(t.Context())
	if err != nil || len(result.Partial) != 0 || result.Nodes[0].JobNS != 0 {
		t.Errorf("%+v, %v", result, err)
	}
}

func TestFailuresAreReported(t *testing.T) {
	f := &fake{name: profiling.CollectIO, read: errors.New("no map"), stop: errors.New("not detached")}
	other := &fake{name: profiling.CollectNoise}
	got := end(t, begin(t, nil, f, other), "").Partial
	if len(got) != 2 || got[0].Collector != profiling.CollectIO || got[0].Why != "not detached" || !strings.Contains(got[1].Why, "no map") {
		t.Errorf("partial is %+v", got)
	}
	if other.closed != 1 || f.closed != 1 {
		t.Error("a session was not closed")
	}
}

// Counts with misses are lower bounds, and the result says so: once, however often it was written before.
func TestMissedRunsMakeTheResultPartial(t *testing.T) {
	f := &fake{name: profiling.CollectSyscalls, spent: bpf.Cost{Runs: 165049, Missed: 34951}}
	r := begin(t, nil, f, &fake{name: profiling.CollectIO, spent: bpf.Cost{Runs: 7}})
	result := end(t, r, "")
	if len(result.Partial) != 1 || result.Partial[0].Node != "n1" || result.Partial[0].Collector != profiling.CollectSyscalls ||
		!strings.Contains(result.Partial[0].Why, "34951 runs") || !strings.Contains(result.Partial[0].Why, "at least") {
		t.Errorf("partial is %+v", result.Partial)
	}
	if got := inFolder(t, r).Partial; len(got) != 1 {
		t.Errorf("in the folder: %+v", got)
	}
}

func TestRefusedCollectorsLeaveTheOthers(t *testing.T) {
	lack := &profiling.Unsupported{Collector: profiling.CollectNoise, Reason: profiling.NoBTF, Detail: "none", Remedy: "build it"}
	part := &profiling.Unsupported{Collector: profiling.CollectIO, Reason: profiling.NoFunction, Detail: "no vfs_readv"}
	result := end(t, begin(t, nil,
		&fake{name: profiling.CollectNoise, check: lack},
		&fake{name: profiling.CollectSyscalls, start: errors.New("odd")},
		&fake{name: profiling.CollectIO, missing: []bpf.Missing{{Part: "vectors", Why: part}}},
	), "")
	want := []profiling.Refusal{
		{Node: "n1", Unsupported: *lack},
		{Node: "n1", Unsupported: profiling.Unsupported{Collector: profiling.CollectSyscalls, Reason: profiling.BrokenStart, Detail: "odd"}},
		{Node: "n1", Unsupported: *part, Part: "vectors"},
	}
	if len(result.Refused) != len(want) {
		t.Fatalf("refused: %+v", result.Refused)
	}
	for i := range want {
		if result.Refused[i] != want[i] {
			t.Errorf("refusal %d is %+v, want %+v", i, result.Refused[i], want[i])
		}
	}
	if result.IO == nil {
		t.Error("the one that works found nothing")
	}
}

func TestMissingCgroupIsReported(t *testing.T) {
	r, err := Start(Request{Job: 7, Node: "n1", Folder: t.TempDir(), Cgroup: t.TempDir()},
		[]Collector{&fake{name: profiling.CollectIO}}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	result := end(t, r, "")
	if len(result.Refused) != 1 || result.Refused[0].Reason != profiling.NoCgroup2 || len(result.Collectors) != 1 {
		t.Errorf("result is %+v", result)
	}
}

func TestLargeResultLosesItsLists(t *testing.T) {
	f := &fake{name: profiling.CollectIO, files: 1000}
	r := begin(t, func(q *Request) { q.MostBytes = 10000 }, f)
	result := end(t, r, "")
	if len(result.Partial) != 1 || result.Partial[0].Why != WhyBound {
		t.Fatalf("partial is %+v", result.Partial)
	}
	read := inFolder(t, r)
	if len(read.IO.Files) != 0 || read.IO.FilesLeftOut != 1000 || read.Syscalls.Named("read").Count != 3 {
		t.Errorf("in the folder: %+v", read.IO)
	}
}

func TestCheckpointIsPartial(t *testing.T) {
	f := &fake{name: profiling.CollectIO, files: 2}
	r, err := prepare(Request{Job: 7, Node: "n1", Folder: t.TempDir(), Cgroup: t.TempDir()}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	r.meter.enable = func() (io.Closer, error) { return io.NopCloser(nil), nil }
	if err := r.startOne(f); err != nil {
		t.Fatal(err)
	}
	r.checkpoint()
	if got := inFolder(t, r); len(got.Partial) != 1 || got.Partial[0].Why != WhyDied || len(got.IO.Files) != 2 {
		t.Errorf("checkpoint is %+v", got)
	}
	go r.work()
	if got := end(t, r, ""); len(got.Partial) != 0 {
		t.Errorf("the end is %+v", got.Partial)
	}
}

func TestLiveFigures(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	f := &fake{name: profiling.CollectIO, files: 3 * liveList}
	r := begin(t, func(q *Request) { q.Socket, q.Owner = socket, os.Getuid() }, f)
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	lines := json.NewDecoder(conn)
	var live profiling.Live
	if err := lines.Decode(&live); err != nil {
		t.Fatal(err)
	}
	if live.Format != profiling.Format || live.Ended || len(live.Result.IO.Files) != liveList || live.Result.IO.FilesLeftOut != 2*liveList {
		t.Errorf("line is %+v", live)
	}
	if len(end(t, r, "").IO.Files) != 3*liveList {
		t.Error("a line cut the result")
	}
	for !live.Ended {
		if err := lines.Decode(&live); err != nil {
			t.Fatal(err)
		}
	}
	if f.tended == 0 {
		t.Error("the collector was not tended")
	}
}

func TestMissingFolderIsAnError(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Start(Request{Job: 7, Folder: file}, nil, quiet); err == nil {
		t.Error("a run without a folder began")
	}
}

func TestResultEndsWithContext(t *testing.T) {
	r := begin(t, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := r.Result(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error is %v", err)
	}
	end(t, r, "")
}

func TestMeterAddsUpWindows(t *testing.T) {
	var job uint64
	m := newMeter(func() uint64 { return job })
	m.enable = func() (io.Closer, error) { return io.NopCloser(nil), nil }
	f := &fake{name: profiling.CollectIO}
	sessions := []working{{f.name, f}}
	for range 2 {
		m.turn(sessions)
		job += 1000
		f.spent = bpf.Cost{Runs: f.spent.Runs + 5, NS: f.spent.NS + 20}
		m.turn(sessions)
		// Nothing counts between windows.
		job += 5000
		f.spent.Runs += 100
	}
	all := m.overhead("n1")
	if len(all) != 1 || all[0].JobNS != 2000 || all[0].Events != 10 || all[0].SpentNS != 40 || all[0].Share() != 0.02 || m.failed != nil {
		t.Errorf("overhead is %+v, %v", all, m.failed)
	}
}

func TestMissingTimingIsReported(t *testing.T) {
	f := &fake{name: profiling.CollectIO}
	r, err := prepare(Request{Job: 7, Node: "n1", Folder: t.TempDir()}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	r.meter.enable = func() (io.Closer, error) { return nil, errors.New("old kernel") }
	if err := r.startOne(f); err != nil {
		t.Fatal(err)
	}
	go r.work()
	if got := end(t, r, "").Partial; len(got) != 1 || !strings.Contains(got[0].Why, "old kernel") {
		t.Errorf("partial is %+v", got)
	}
}
