// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/catalog"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/history"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/server"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/artifact"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/digest"
	"github.com/kernelbroker/kernelbroker/tests/support/imagetest"
	"github.com/kernelbroker/kernelbroker/tests/support/memstore"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// files is the broker's own store, with a line that can be cut.
type files struct {
	*artifact.Store
	t    *testing.T
	root string
	cut  int64 // the next upload breaks off after this many bytes
}

func newFiles(t *testing.T) *files {
	t.Helper()
	f := &files{t: t, root: t.TempDir()}
	var err error
	f.Store, err = artifact.OpenStore(f.root, artifact.StoreOptions{Limit: 1 << 30, Log: slog.New(slog.DiscardHandler),
		Needed: func(context.Context) (map[string][]string, error) {
			return map[string][]string{digest.Of([]byte("needed")): {"mitgcm@1"}}, nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *files) Put(ctx context.Context, digest string, size uint64, source io.Reader) (bool, error) {
	if f.cut > 0 {
		source = io.MultiReader(io.LimitReader(source, f.cut), iotest.ErrReader(fmt.Errorf("the line is cut: %w", kb.ErrUnavailable)))
		f.cut = 0
	}
	return f.Store.Put(ctx, digest, size, source)
}

// keep stores a file and returns its digest.
func (f *files) keep(content []byte) string {
	f.t.Helper()
	sum := digest.Of(content)
	if _, err := f.Store.Put(f.t.Context(), sum, uint64(len(content)), bytes.NewReader(content)); err != nil {
		f.t.Fatal(err)
	}
	return sum
}

// replace gives a stored file other content.
func (f *files) replace(digest string, content []byte) {
	f.t.Helper()
	path := filepath.Join(f.root, "sha256", digest[7:9], digest[7:])
	if err := errors.Join(os.Remove(path), os.WriteFile(path, content, 0o444)); err != nil {
		f.t.Fatal(err)
	}
}

// count is how many files are stored.
func (f *files) count() int {
	f.t.Helper()
	all, _, _, err := f.List(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	return len(all)
}

// nodes and jobs answer with data from the test.
type nodes struct {
	api.UnimplementedNodeServiceServer
	list []*api.Node
}

func (n *nodes) ListNodes(context.Context, *api.ListNodesRequest) (*api.ListNodesResponse, error) {
	return &api.ListNodesResponse{Nodes: n.list}, nil
}

func (n *nodes) GetNode(_ context.Context, r *api.GetNodeRequest) (*api.GetNodeResponse, error) {
	for _, node := range n.list {
		if node.GetName() == r.GetName() {
			return &api.GetNodeResponse{Node: node}, nil
		}
	}
	return nil, fmt.Errorf("node %q: %w", r.GetName(), kb.ErrNotFound)
}

type jobs struct {
	api.UnimplementedAllocationServiceServer
	mu   sync.Mutex
	list []*api.Job
	// looks counts the calls of GetJob; then may change the list.
	looks int
	asked *api.ListJobsRequest // last
	most  int                  // that one answer takes, if above 0
	then  func(looks int, list []*api.Job)
}

func (j *jobs) ListJobs(_ context.Context, r *api.ListJobsRequest) (*api.ListJobsResponse, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.asked = r; int(r.GetLimit()) > j.most && j.most > 0 {
		return nil, fmt.Errorf("ask for fewer: %w", kb.ErrExhausted)
	}
	return &api.ListJobsResponse{Jobs: j.list[:min(len(j.list), int(r.GetLimit()))]}, nil
}

func (j *jobs) GetJob(_ context.Context, r *api.GetJobRequest) (*api.GetJobResponse, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.looks++; j.then != nil {
		j.then(j.looks, j.list)
	}
	for _, job := range j.list {
		if job.GetJobId() == r.GetJobId() && (r.RestartCount == nil || *r.RestartCount == job.GetRestartCount()) {
			return &api.GetJobResponse{Job: job}, nil
		}
	}
	return nil, fmt.Errorf("job %d: %w", r.GetJobId(), kb.ErrNotFound)
}

func (j *jobs) GetJobWait(_ context.Context, r *api.GetJobWaitRequest) (*api.GetJobWaitResponse, error) {
	switch r.GetJobId() {
	case 21:
		return &api.GetJobWaitResponse{Reference: "21", State: "PENDING", Reason: "Resources", Waits: []string{"nodes that return", "Slurm, whose reason is Resources"},
			Nodes: []*api.WaitingNode{{Name: "n4", Since: timestamppb.New(noon)}}}, nil
	case 22:
		return &api.GetJobWaitResponse{Reference: "22", State: "RUNNING"}, nil
	}
	return nil, fmt.Errorf("job %d has ended or is unknown: %w", r.GetJobId(), kb.ErrNotFound)
}

// fixture is a broker: the real server and catalog over invented nodes and
// jobs.
type fixture struct {
	t          *testing.T
	socket     string
	catalog    *catalog.Catalog
	files      *files
	nodes      *nodes
	jobs       *jobs
	runs       runs
	hardware   hardware
	events     *history.Journal
	components []server.Component
	try        bootTest // for registrations
}

func newFixture(t *testing.T, change ...func(*server.Options)) *fixture {
	t.Helper()
	f := &fixture{t: t, socket: filepath.Join(t.TempDir(), "b.sock"), files: newFiles(t), nodes: &nodes{}, jobs: &jobs{}}
	store := memstore.New()
	quiet := slog.New(slog.DiscardHandler)
	var err error
	if f.events, err = history.Open(t.Context(), history.Options{Store: store, Log: quiet}); err != nil {
		t.Fatal(err)
	}
	f.catalog = catalog.New(catalog.Options{Store: store, HasArtifact: f.files.Has, Log: quiet, Now: func() time.Time { return noon }})
	f.components = []server.Component{{Name: "store", Healthy: true, Detail: "revision 7"}, {Name: "slurm", Healthy: true, Detail: "22.05.8"}}
	options := server.Options{Catalog: f.catalog, Artifacts: f.files, Version: "1.2.3", Log: quiet,
		Health: func(context.Context) []server.Component { return f.components }}
	for _, c := range change {
		c(&options)
	}
	served := server.NewServer(options)
	api.RegisterNodeServiceServer(served, f.nodes)
	api.RegisterAllocationServiceServer(served, f.jobs)
	api.RegisterHardwareServiceServer(served, server.NewHardwareService(&f.hardware))
	api.RegisterRunServiceServer(served, &f.runs)
	api.RegisterEventServiceServer(served, server.NewEventService(f.events))
	listener, err := net.Listen("unix", f.socket)
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := served.Serve(options.Listener(listener)); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		served.Stop()
		serving.Wait()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// run runs kernelctl against the fixture.
func (f *fixture) run(arguments ...string) (code int, stdout, stderr string) {
	f.t.Helper()
	return runWith(f.t, "unix://"+f.socket, f.try, arguments...)
}

func runAt(t *testing.T, address string, arguments ...string) (code int, stdout, stderr string) {
	t.Helper()
	return runWith(t, address, nil, arguments...)
}

func runWith(t *testing.T, address string, try bootTest, arguments ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, wrong bytes.Buffer
	code = Run(t.Context(), Invocation{
		Args: arguments, Stdout: &out, Stderr: &wrong, Version: "1.2.3", try: try,
		Getenv: func(name string) string { return map[string]string{addressVariable: address}[name] },
	})
	return code, out.String(), wrong.String()
}

// must fails unless the run ended with the code and its stderr contains the text.
func (f *fixture) must(want int, words string, arguments ...string) (stdout string) {
	f.t.Helper()
	code, stdout, stderr := f.run(arguments...)
	if code != want || !strings.Contains(stderr, words) {
		f.t.Errorf("kernelctl %s: exit %d, want %d with %q\n%s%s", strings.Join(arguments, " "), code, want, words, stdout, stderr)
	}
	return stdout
}

// golden compares with testdata/name.
func golden(t *testing.T, name, got string) {
	t.Helper()
	got = brokersClock.ReplaceAllString(withoutUser(got), "${1}NOW")
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s has changed; got\n%s\nwant\n%s", name, got, want)
	}
}

// brokersClock is the time in the broker's health.
var brokersClock = regexp.MustCompile(`(\bnow"?: "?)\d{4}-[^"\s]*`)

// withoutUser removes the current user from a text, with the width of the name.
func withoutUser(text string) string {
	for _, who := range regexp.MustCompile(`[a-z0-9_-]+ \(uid \d+\)|\buid \d+\b`).FindAllString(text, -1) {
		text = strings.ReplaceAll(text, who, "SOMEBODY")
	}
	before, history, found := strings.Cut(text, "\nHistory:\n")
	if !found {
		return text
	}
	return before + "\nHistory:\n" + regexp.MustCompile(` {2,}`).ReplaceAllString(history, "  ")
}

// agentsConfig has the options that an agent needs.
const agentsConfig = `CONFIG_64BIT=y
CONFIG_RELOCATABLE=y
CONFIG_KEXEC=y
CONFIG_KEXEC_CORE=y
CONFIG_BINFMT_ELF=y
CONFIG_PROC_FS=y
CONFIG_SYSFS=y
CONFIG_SHMEM=y
CONFIG_MEMFD_CREATE=y
CONFIG_NO_HZ_COMMON=y
CONFIG_TMPFS=y
CONFIG_FUTEX=y
CONFIG_EPOLL=y
CONFIG_POSIX_TIMERS=y
CONFIG_UNIX=y
CONFIG_INET=y
`

// writeKernel makes a kernel as the factory leaves it, and returns its folder.
func writeKernel(t *testing.T, kernels, name, content string) string {
	t.Helper()
	sum := sha256.Sum256([]byte(content))
	return describe(t, kernels, name, content, hex.EncodeToString(sum[:20]))
}

// bootable is writeKernel of an image that passes for one.
func bootable(t *testing.T, kernels, name string, config ...string) string {
	t.Helper()
	id := strings.Repeat("ab", 20)
	image, err := imagetest.Image(imagetest.Kernel{Release: "6.1.0-" + name, BuildID: id, Config: agentsConfig + strings.Join(config, "")})
	if err != nil {
		t.Fatal(err)
	}
	return describe(t, kernels, name, string(image), id)
}

func describe(t *testing.T, kernels, name, content, id string) string {
	t.Helper()
	dir := filepath.Join(kernels, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(content))
	if err := os.WriteFile(filepath.Join(dir, "bzImage"), []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(map[string]any{
		"format": 1, "name": name, "release": "6.1.0-" + name, "build_id": id, "architecture": "x86_64",
		"image":   map[string]any{"name": "bzImage", "digest": "sha256:" + hex.EncodeToString(sum[:]), "size": len(content)},
		"drivers": map[string]any{"builtin": []string{"virtio_net", "virtio_blk"}, "modular": []string{}}, "filesystems": map[string]any{"builtin": []string{"ext4"}},
		"source":   map[string]any{"package": "linux-source-6.1", "version": "6.1-1", "digest": "sha256:" + strings.Repeat("5", 64)},
		"config":   map[string]any{"name": "config", "digest": "sha256:" + strings.Repeat("c", 64), "size": 1},
		"compiler": map[string]any{"name": "gcc-12", "version": "gcc-12 12.2.0", "linker": "GNU ld 2.40"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "kernel.json"), text, 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

func at(ms int) *timestamppb.Timestamp {
	return timestamppb.New(noon.Add(time.Duration(ms) * time.Millisecond))
}
