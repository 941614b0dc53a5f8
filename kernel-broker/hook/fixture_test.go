// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

// The test program is the hook too: so hooks run as processes of their own,
// with the race detector, and can be killed.
const asHook = "KERNEL_BROKER_TEST_AS_HOOK"

func TestMain(m *testing.M) {
	if os.Getenv(asHook) != "" {
		os.Exit(Run(Invocation{Args: os.Args, Getenv: os.Getenv, Stdout: os.Stdout, Stderr: os.Stderr, Version: "test", Exit: os.Exit}))
	}
	os.Exit(m.Run())
}

// fakeBroker is a real gRPC server with answers chosen by the test.
type fakeBroker struct {
	api.UnimplementedAllocationServiceServer
	mu       sync.Mutex
	ensures  []*api.EnsureKernelRequest
	releases []*api.ReleaseJobRequest
	reboots  []*api.NoteRebootRequest
	others   []string // nodes without an agent
	runs     fakeRuns
	// ensure answers the n-th call, from 1.
	ensure func(n int, stream api.AllocationService_EnsureKernelServer) error
}

func (b *fakeBroker) EnsureKernel(r *api.EnsureKernelRequest, stream api.AllocationService_EnsureKernelServer) error {
	b.mu.Lock()
	b.ensures = append(b.ensures, r)
	n := len(b.ensures)
	b.mu.Unlock()
	return b.ensure(n, stream)
}

func (b *fakeBroker) ReleaseJob(_ context.Context, r *api.ReleaseJobRequest) (*api.ReleaseJobResponse, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.releases = append(b.releases, r)
	return &api.ReleaseJobResponse{}, nil
}

func (b *fakeBroker) NoteReboot(_ context.Context, r *api.NoteRebootRequest) (*api.NoteRebootResponse, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reboots = append(b.reboots, r)
	return &api.NoteRebootResponse{WithoutAgent: b.others}, nil
}

func (b *fakeBroker) calls() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.ensures)
}

// seen returns the requests so far.
func (b *fakeBroker) seen() (ensures []*api.EnsureKernelRequest, releases []*api.ReleaseJobRequest, reboots []*api.NoteRebootRequest) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.ensures), slices.Clone(b.releases), slices.Clone(b.reboots)
}

// say sends one progress message.
func say(stream api.AllocationService_EnsureKernelServer, phase api.AllocationPhase, message string) error {
	return stream.Send(&api.EnsureKernelResponse{Phase: phase, Message: message, NodesTotal: 3})
}

const (
	switching = api.AllocationPhase_ALLOCATION_PHASE_SWITCHING
	isReady   = api.AllocationPhase_ALLOCATION_PHASE_READY
	hasFailed = api.AllocationPhase_ALLOCATION_PHASE_FAILED
	returning = api.AllocationPhase_ALLOCATION_PHASE_RETURNING
)

// host is a controller: a folder with settings, a scontrol and a socket.
type host struct {
	t      *testing.T
	dir    string
	broker *fakeBroker
}

// A fake scontrol records its arguments. A fake squeue knows one job and another one of its array.
const (
	scontrolScript = `#!/bin/sh
echo "$@" >> %[1]s/asked
[ "$SLURM_CONF" = %[1]s/slurm.conf ] || exit 9
case "$*" in
uhold*) [ -e %[1]s/pending ] || { echo "Job/step already completing or completed" >&2; exit 1; } ;;
requeue*) [ ! -e %[1]s/interactive ] || { echo "Only batch jobs are accepted or processed for job 12" >&2; exit 1; } ;;
esac
`
	squeueScript = `#!/bin/sh
[ "$SLURM_CONF$SQUEUE_LOCAL" = %[1]s/slurm.conf1 ] || exit 9
case "$*" in
*--jobs=12*"--Format=JobID:12|,RestartCnt:12|,State:20|") ;;
*--jobs=12*"--Format=JobID:12|,BatchFlag:12|")
	[ -e %[1]s/interactive ] && batch=0 || batch=1
	printf '%%-12s|%%-12s|\n' 11 1 12 $batch
	exit ;;
*--jobs=12*"--Format=JobID:12,admin_comment:1100")
	[ ! -e %[1]s/comment ] || printf '%%-12s%%-1100s\n' 11 other 12 "$(cat %[1]s/comment)"
	exit ;;
*) exit 8 ;;
esac
[ -e %[1]s/job ] || { echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1; }
cat %[1]s/job
`
)

func newHost(t *testing.T) *host {
	t.Helper()
	h := &host{t: t, dir: t.TempDir(), broker: &fakeBroker{}}
	for name, text := range map[string]string{"scontrol": scontrolScript, "squeue": squeueScript} {
		h.write(name, fmt.Sprintf(text, h.dir))
		if err := os.Chmod(h.path(name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	h.job("RUNNING", 0)
	h.settings("20s", "60s") // also for a broker that is slow to answer
	return h
}

func (h *host) path(name string) string { return filepath.Join(h.dir, name) }

func (h *host) write(name, text string) {
	h.t.Helper()
	if err := os.WriteFile(h.path(name), []byte(text), 0o644); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) read(name string) string {
	text, err := os.ReadFile(h.path(name))
	if err != nil && !os.IsNotExist(err) {
		h.t.Fatal(err)
	}
	return string(text)
}

// job sets slurmctld's answer about job 12.
func (h *host) job(state string, restart int) {
	h.write("job", fmt.Sprintf("11          |0           |PENDING             |\n12          |%-12d|%-20s|\n", restart, state))
}

func (h *host) settings(brokerWait, prologLimit string) {
	h.write("client.yaml", fmt.Sprintf("broker: unix://%[1]s/broker.sock\nscontrol: %[1]s/scontrol\nslurm_conf: %[1]s/slurm.conf\n"+
		"state_dir: %[1]s/state\nlog_file: %[1]s/log\nbroker_wait: %[2]s\nprolog_limit: %[3]s\nhold_after: 3\n", h.dir, brokerWait, prologLimit))
}

// serve starts the broker; the function ends it.
func (h *host) serve() (stop func()) {
	h.t.Helper()
	listener, err := net.Listen("unix", h.path("broker.sock"))
	if err != nil {
		h.t.Fatal(err)
	}
	server := grpc.NewServer()
	api.RegisterAllocationServiceServer(server, h.broker)
	api.RegisterRunServiceServer(server, &h.broker.runs)
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := server.Serve(listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			h.t.Error(err)
		}
	})
	var once sync.Once
	stop = func() {
		once.Do(func() {
			server.Stop()
			serving.Wait()
		})
	}
	h.t.Cleanup(stop)
	return stop
}

// environment of job 12 as slurmctld makes it.
func environment(change ...string) []string {
	return append([]string{
		asHook + "=1", "SPANK_KERNEL_PROFILE=mitgcm@3", "SLURM_JOB_ID=12", "SLURM_JOB_RESTART_COUNT=0",
		"SLURM_JOB_NODELIST=n[1-2],gpu07",
	}, change...)
}

func (h *host) command(environment []string, arguments ...string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		h.t.Fatal(err)
	}
	cmd := exec.Command(self, arguments...)
	cmd.Env = environment
	cmd.Dir = "/"
	return cmd
}

// run runs a hook to its end.
func (h *host) run(environment []string, arguments ...string) (code int, output string, took time.Duration) {
	h.t.Helper()
	cmd := h.command(environment, arguments...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	begin := time.Now()
	err := cmd.Run()
	if cmd.ProcessState == nil {
		h.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), time.Since(begin)
}

func (h *host) prolog(change ...string) (code int, output string, took time.Duration) {
	h.t.Helper()
	return h.run(environment(change...), prologName, "--config", h.path("client.yaml"))
}

// requeued is what a prolog asks of scontrol whose job does not start.
const requeued = "requeue incomplete 12"

// held returns the changes but that, and but what is told.
func (h *host) held() []string {
	return slices.DeleteFunc(h.asked(), func(change string) bool { return change == requeued || strings.HasPrefix(change, "notify") })
}

// asked returns the changes requested from scontrol.
func (h *host) asked() []string {
	var changes []string
	for line := range strings.Lines(h.read("asked")) {
		changes = append(changes, strings.TrimSpace(line))
	}
	return changes
}
