// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kernelbroker/kernelbroker/kernel-broker/api/client"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

// fakeRuns is the broker's RunService.
type fakeRuns struct {
	api.UnimplementedRunServiceServer
	mu    sync.Mutex
	begun []uint32
	fail  error
}

func (r *fakeRuns) BeginRun(_ context.Context, q *api.BeginRunRequest) (*api.BeginRunResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begun = append(r.begun, q.GetJobId(), q.GetRestartCount())
	return &api.BeginRunResponse{Run: &api.Run{Id: 3}}, r.fail
}

// asked returns the jobs received so far and forgets them.
func (r *fakeRuns) asked() []uint32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	begun := r.begun
	r.begun = nil
	return begun
}

func (r *fakeRuns) refuse(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail = err
}

func plainJob(more ...string) []string {
	return append([]string{asHook + "=1", "SPANK_KERNEL_PROFILING=io", "SLURM_JOB_ID=12", "SLURM_JOB_RESTART_COUNT=1"}, more...)
}

// A failure of profiling never stops the job.
func TestProfilingFailureStartsJob(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	settings := []string{prologName, "--config", h.path("client.yaml")}
	stop := h.serve()
	if code, output, _ := h.run(plainJob(), settings...); code != 0 || !strings.Contains(output, "run=3") {
		t.Errorf("exit %d: %s", code, output)
	}
	if got := h.broker.runs.asked(); !slices.Equal(got, []uint32{12, 1}) {
		t.Errorf("begun %v", got)
	}
	if code, output, _ := h.run(plainJob(), epilogName, "--config", "/nowhere"); code != 0 || output != "" {
		t.Errorf("the epilog: exit %d, %q", code, output)
	}
	if code, output, _ := h.run(plainJob("SLURM_JOB_ID=x"), settings...); code != 0 || !strings.Contains(output, "environment") {
		t.Errorf("no job id: exit %d, %q", code, output)
	}
	h.broker.runs.refuse(status.Error(codes.NotFound, "job 12 has no nodes"))
	if code, output, _ := h.run(plainJob(), settings...); code != 0 || !strings.Contains(output, "job is not profiled") {
		t.Errorf("refused: exit %d, %s", code, output)
	}
	stop()
	code, output, took := h.run(plainJob(), settings...)
	if code != 0 || took > client.DefaultConfig().ProfilingWait+slack || !strings.Contains(output, "job is not profiled") {
		t.Errorf("without a broker: exit %d after %v: %s", code, took, output)
	}
	if code, output, _ := h.run(plainJob(), prologName, "--config", "/nowhere"); code != 0 {
		t.Errorf("without settings: exit %d: %s", code, output)
	}
	// A job with a kernel of its own has its run with its allocation.
	h.broker.ensure = func(_ int, stream api.AllocationService_EnsureKernelServer) error { return say(stream, isReady, "") }
	h.broker.runs.asked()
	h.serve()
	code, output, _ = h.run(plainJob("SPANK_KERNEL_PROFILE=mitgcm", "SLURM_JOB_NODELIST=n1"), settings...)
	if begun := h.broker.runs.asked(); code != 0 || begun != nil {
		t.Errorf("with a profile: exit %d, begun %v: %s", code, begun, output)
	}
}
