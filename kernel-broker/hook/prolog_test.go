// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

func always(phase api.AllocationPhase, message string) func(int, api.AllocationService_EnsureKernelServer) error {
	return func(_ int, stream api.AllocationService_EnsureKernelServer) error { return say(stream, phase, message) }
}

func TestPlainJobsOpenNoFiles(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	for _, value := range []string{"", "stock", "stock@2"} {
		for _, name := range []string{prologName, epilogName} {
			// No settings, no broker, no valid environment: the hook opens nothing.
			code, output, _ := h.run([]string{asHook + "=1", "SPANK_KERNEL_PROFILE=" + value, "SLURM_JOB_ID=x"}, name, "--config", "/nowhere")
			if code != 0 || output != "" {
				t.Errorf("%s with %q: exit %d, %q", name, value, code, output)
			}
		}
	}
}

func TestPrologWaitsUntilReady(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.broker.ensure = func(_ int, stream api.AllocationService_EnsureKernelServer) error {
		if err := say(stream, switching, "n1 boots"); err != nil {
			return err
		}
		time.Sleep(100 * time.Millisecond)
		return say(stream, isReady, "mitgcm@3 on 3 nodes")
	}
	h.serve()
	code, output, _ := h.prolog("SLURM_JOB_RESTART_COUNT=4")
	if code != 0 || !strings.Contains(output, `phase=switching message="n1 boots"`) || h.read("log") != output {
		t.Errorf("exit %d, output %s, log %s", code, output, h.read("log"))
	}
	ensures, _, _ := h.broker.seen()
	got := ensures[0]
	if got.GetJobId() != 12 || got.GetRestartCount() != 4 || got.GetProfile() != "mitgcm@3" || strings.Join(got.GetNodes(), " ") != "n1 n2 gpu07" {
		t.Errorf("request %v", got)
	}
	if h.read("asked") != "" {
		t.Errorf("scontrol was asked: %s", h.read("asked"))
	}
}

func TestPrologFails(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.broker.ensure = always(hasFailed, "n2: no such driver")
	h.serve()
	// Exit 1 would have slurmctld requeue a job that is cancelled after the question, too.
	requeues := 0
	for _, c := range []struct {
		state   string
		restart int
		requeue bool
	}{
		{"RUNNING", 0, true}, {"CONFIGURING", 0, true},
		{"CANCELLED", 0, false}, {"COMPLETING", 0, false}, {"PENDING", 1, false}, {"CONFIGURING", 1, false},
	} {
		h.job(c.state, c.restart)
		if c.requeue {
			requeues++
		}
		code, output, _ := h.prolog()
		if code != 0 || !strings.Contains(output, "n2: no such driver") || len(h.asked()) != requeues {
			t.Errorf("%s, restart %d: exit %d, want requeue %v: %v: %s", c.state, c.restart, code, c.requeue, h.asked(), output)
		}
	}
	if err := os.Remove(h.path("job")); err != nil {
		t.Fatal(err)
	}
	if code, _, _ := h.prolog(); code != 0 || len(h.asked()) != requeues+1 {
		t.Errorf("squeue does not answer: exit %d, %v", code, h.asked())
	}
	// slurmctld ends a job that it cannot requeue.
	h.write("interactive", "")
	if code, output, _ := h.prolog(); code != 1 || !strings.Contains(output, "Only batch jobs") {
		t.Errorf("a job that cannot be requeued: exit %d: %s", code, output)
	}
	// The broker counts these failures.
	if len(h.held()) != 0 || h.read("state") != "" {
		t.Errorf("scontrol: %v", h.asked())
	}
}

func TestPrologOfEndedJob(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.broker.ensure = always(returning, "cancelled")
	h.serve()
	h.job("CANCELLED", 0)
	if code, output, _ := h.prolog(); code != 0 {
		t.Errorf("exit %d: %s", code, output)
	}
	// A slurmctld that forgot the job's nodes allocates new ones.
	h.job("CONFIGURING", 0)
	if code, output, _ := h.prolog(); code != 0 || len(h.asked()) != 1 || h.asked()[0] != requeued {
		t.Errorf("a job that starts again: exit %d, %v: %s", code, h.asked(), output)
	}
	h.job("CONFIGURING", 1)
	if code, output, _ := h.prolog(); code != 0 || len(h.asked()) != 1 {
		t.Errorf("of an older run: exit %d, %v: %s", code, h.asked(), output)
	}
}

func TestPrologJoinsAgainWhenTheStreamBreaks(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.broker.ensure = func(n int, stream api.AllocationService_EnsureKernelServer) error {
		switch n {
		case 1:
			return say(stream, switching, "begun") // and ends without an outcome
		case 2:
			return status.Error(codes.Unavailable, "store is away")
		}
		return say(stream, isReady, "")
	}
	h.serve()
	if code, output, _ := h.prolog(); code != 0 || h.broker.calls() != 3 {
		t.Errorf("exit %d after %d calls: %s", code, h.broker.calls(), output)
	}
}

// A switch may be silent for longer than a hook waits for a lost broker, and the wait begins with the loss. munged may be
// away for a moment, too.
func TestPrologWaitsFromTheLossOn(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.settings("300ms", "20s")
	h.broker.ensure = func(n int, stream api.AllocationService_EnsureKernelServer) error {
		switch n {
		case 1:
			if err := say(stream, switching, "n1 boots"); err != nil {
				return err
			}
			time.Sleep(600 * time.Millisecond)
			return status.Error(codes.Unavailable, "killed")
		case 2:
			return status.Error(codes.Unauthenticated, "credential was made before this broker began to listen")
		}
		return say(stream, isReady, "mitgcm@3 on 3 nodes")
	}
	h.serve()
	if code, output, _ := h.prolog(); code != 0 {
		t.Errorf("exit %d, %s", code, output)
	}
}

// A broker that hangs before it says anything is lost when the stream breaks, and not before: another one may act by then.
func TestPrologLeavesABrokerThatHangs(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.settings("1s", "60s")
	h.broker.ensure = func(n int, stream api.AllocationService_EnsureKernelServer) error {
		if n == 1 {
			time.Sleep(1500 * time.Millisecond)
			return status.Error(codes.Unavailable, "keepalive ping failed")
		}
		return say(stream, isReady, "ready")
	}
	h.serve()
	if code, out, _ := h.prolog(); code != 0 || h.broker.calls() != 2 {
		t.Errorf("exit %d after %d calls: %s%s", code, h.broker.calls(), out, h.read("log"))
	}
}

// A broker without room is not away, however long that lasts.
func TestPrologWaitsForRoom(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.settings("300ms", "20s")
	busy, err := status.New(codes.ResourceExhausted, "256 other jobs are being given their kernels").
		WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(250 * time.Millisecond)})
	if err != nil {
		t.Fatal(err)
	}
	h.broker.ensure = func(n int, stream api.AllocationService_EnsureKernelServer) error {
		if n < 5 {
			return busy.Err()
		}
		return say(stream, isReady, "")
	}
	h.serve()
	code, output, took := h.prolog()
	if code != 0 || h.broker.calls() != 5 || took < time.Second || !strings.Contains(output, "256 other jobs") {
		t.Errorf("exit %d after %d calls and %v: %s", code, h.broker.calls(), took, output)
	}
	if len(h.asked()) != 0 {
		t.Errorf("scontrol: %v", h.asked())
	}
}

func TestPrologOutlivesTheBroker(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	var first atomic.Bool
	first.Store(true)
	h.broker.ensure = func(_ int, stream api.AllocationService_EnsureKernelServer) error {
		if first.Load() {
			if err := say(stream, switching, "begun"); err != nil {
				return err
			}
			<-stream.Context().Done()
			return stream.Context().Err()
		}
		return say(stream, isReady, "")
	}
	stop := h.serve()
	type result struct {
		code   int
		output string
	}
	ended := make(chan result, 1)
	go func() {
		code, output, _ := h.prolog()
		ended <- result{code, output}
	}()
	for deadline := time.Now().Add(slack); h.broker.calls() == 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the hook never called")
		}
	}
	stop()
	first.Store(false)
	time.Sleep(500 * time.Millisecond)
	h.serve()
	if r := <-ended; r.code != 0 {
		t.Errorf("exit %d: %s", r.code, r.output)
	}
}

func TestPrologWithoutBrokerFinallyHoldsJob(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.settings("300ms", "5m")
	h.write("comment", "kernel-broker: mitgcm requested; profiling=io; norequeue | site text")
	for restart, state := range []string{"0", "0", "1", "2"} {
		h.job("CONFIGURING", int(state[0]-'0'))
		code, output, took := h.prolog("SLURM_JOB_RESTART_COUNT=" + state)
		if code != 0 || took < 300*time.Millisecond || took > slack {
			t.Errorf("run %d: exit %d after %v: %s", restart, code, took, output)
		}
		if held := len(h.held()) > 0; held != (state == "2") {
			t.Errorf("run %d: held %v: %v", restart, held, h.asked())
		}
	}
	want := []string{
		"update jobid=12 admincomment=kernel-broker: broker unreachable, job held; ask your administrator, then scontrol release; profiling=io; norequeue",
		"requeuehold incomplete 12", "uhold 12",
	}
	if strings.Join(h.held(), "\n") != strings.Join(want, "\n") {
		t.Errorf("scontrol: %q", h.asked())
	}
	if left, err := os.ReadDir(h.path("state")); err != nil || len(left) != 0 {
		t.Errorf("a released job does not start counting from zero: %v, %v", left, err)
	}
}

// The hook of another component of a heterogeneous job has requeued it first.
func TestPrologHoldsAJobThatIsPending(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.settings("100ms", "20s")
	h.write("pending", "")
	h.write("client.yaml", strings.Replace(h.read("client.yaml"), "hold_after: 3", "hold_after: 1", 1))
	code, output, _ := h.prolog()
	if got := h.held(); code != 0 || len(got) != 3 || got[2] != "uhold 12" || strings.Contains(output, "not held") {
		t.Errorf("exit %d, scontrol %q: %s", code, got, output)
	}
}

func TestSuccessResetsTheCount(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.settings("100ms", "20s")
	h.prolog()
	if left, err := os.ReadDir(h.path("state")); err != nil || len(left) != 1 {
		t.Fatalf("counted: %v, %v", left, err)
	}
	h.broker.ensure = always(isReady, "")
	h.serve()
	if code, output, _ := h.prolog("SLURM_JOB_RESTART_COUNT=1"); code != 0 {
		t.Errorf("exit %d: %s", code, output)
	}
	if left, err := os.ReadDir(h.path("state")); err != nil || len(left) != 0 {
		t.Errorf("still counted: %v, %v", left, err)
	}
}

func TestPrologHoldsRefusedJobs(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.settings("5m", "10m")
	h.broker.ensure = func(int, api.AllocationService_EnsureKernelServer) error {
		return status.Error(codes.InvalidArgument, `profile name "A": character 'A'`)
	}
	h.serve()
	for _, restart := range []string{"0", "1", "2"} {
		h.job("CONFIGURING", int(restart[0]-'0'))
		if code, output, took := h.prolog("SLURM_JOB_RESTART_COUNT=" + restart); code != 0 || took > slack {
			t.Errorf("exit %d after %v: %s", code, took, output)
		}
	}
	if got := h.held(); len(got) != 3 || got[0] != `update jobid=12 admincomment=kernel-broker: profile name "A": character 'A'; job held` {
		t.Errorf("scontrol: %q", got)
	}
}

func TestPrologIsBounded(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.settings("500ms", "5s") // in which it has to connect and receive n1
	h.broker.ensure = func(_ int, stream api.AllocationService_EnsureKernelServer) error {
		if err := say(stream, switching, "n1 boots"); err != nil {
			return err
		}
		<-stream.Context().Done()
		return stream.Context().Err()
	}
	h.serve()
	code, output, took := h.prolog()
	if code != 0 || took > 5*time.Second+slack || !strings.Contains(output, "no kernel within 5s, last progress: n1 boots") {
		t.Errorf("exit %d after %v: %s", code, took, output)
	}
}

// A socket that accepts and stays silent counts as no broker.
func TestPrologWithSilentSocket(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.settings("500ms", "60s")
	listener, err := net.Listen("unix", h.path("broker.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	if code, output, took := h.prolog(); code != 0 || took > 30*time.Second || !strings.Contains(output, "unreachable") {
		t.Errorf("exit %d after %v: %s", code, took, output)
	}
}

func TestPrologKilledAndRunAgain(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		t.Run(signal.String(), func(t *testing.T) {
			h := newHost(t)
			var done atomic.Bool
			h.broker.ensure = func(_ int, stream api.AllocationService_EnsureKernelServer) error {
				if err := say(stream, switching, "begun"); err != nil {
					return err
				}
				if !done.Load() {
					<-stream.Context().Done()
					return stream.Context().Err()
				}
				return say(stream, isReady, "")
			}
			h.serve()
			cmd := h.command(environment(), prologName, "--config", h.path("client.yaml"))
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			for deadline := time.Now().Add(slack); !strings.Contains(h.read("log"), "begun"); time.Sleep(5 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("no progress")
				}
			}
			if err := cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // the state below tells more
			// Not an exit code, which would requeue the job.
			if ws := cmd.ProcessState.Sys().(syscall.WaitStatus); !ws.Signaled() || ws.Signal() != signal {
				t.Errorf("ended with %v", cmd.ProcessState)
			}
			done.Store(true)
			if code, output, _ := h.prolog(); code != 0 || h.broker.calls() != 2 {
				t.Errorf("run again: exit %d, %d calls: %s", code, h.broker.calls(), output)
			}
			if asked, _, _ := h.broker.seen(); asked[0].String() != asked[1].String() {
				t.Errorf("asked %v, then %v", asked[0], asked[1])
			}
		})
	}
}

func TestPrologTwiceAtOnce(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.broker.ensure = always(isReady, "")
	h.serve()
	codes := make(chan int, 2)
	for range 2 {
		go func() {
			code, _, _ := h.prolog()
			codes <- code
		}()
	}
	if a, b := <-codes, <-codes; a != 0 || b != 0 {
		t.Errorf("exit %d and %d", a, b)
	}
}
