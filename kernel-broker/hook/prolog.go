// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kernelbroker/kernelbroker/kernel-broker/api/client"
	"github.com/kernelbroker/kernelbroker/kernel-broker/api/convert"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

// Pauses between attempts to reach the broker.
const (
	retryPauseMin = 100 * time.Millisecond
	retryPauseMax = 2 * time.Second
)

// outcome of a prolog, in words for the log.
type outcome string

const (
	// ready: every node runs the kernel; the job starts.
	ready outcome = "ready"
	// gone: the job has left; it must not start.
	gone outcome = "gone"
	// failed: the broker reports that the job does not get its kernel. It counts such failures and holds the job if
	// necessary.
	failed outcome = "failed"
	// refused: the broker rejects the request and does not count it.
	refused outcome = "refused"
	// unreachable: no broker answers, so the hook counts.
	unreachable outcome = "broker unreachable"
	// late: time is up.
	late outcome = "time is up"
	// unread: the hook cannot read its settings, so it counts itself.
	unread outcome = "settings not read"
)

// prolog is one run of PrologSlurmctld.
type prolog struct {
	config   client.Config
	job      job
	log      *slog.Logger
	scontrol scontrol
	tally    tally
	teller   *teller
}

// newProlog reads the job from the environment.
func newProlog(config client.Config, getenv func(string) string, log *slog.Logger) (*prolog, error) {
	j, err := jobOf(getenv)
	if err == nil {
		err = j.readNodes(getenv)
	}
	if err != nil {
		log.Error("environment not as slurmctld makes it", "error", err)
		return nil, err
	}
	return &prolog{
		config: config, job: j, scontrol: newScontrol(config), tally: tally{config.StateDir},
		log: log.With("job", j.reference, "restart", j.id.Restart, "profile", j.profile),
	}, nil
}

// failProlog fails a job whose hook could not read its settings, and holds it
// when that does not end.
func failProlog(config client.Config, getenv func(string) string, log *slog.Logger, why error) int {
	p, err := newProlog(config, getenv, log)
	if err != nil {
		return 1
	}
	return p.end(unread, why.Error())
}

// runProlog returns 0 when the job may start and 1 when it must not.
func runProlog(config client.Config, getenv func(string) string, log *slog.Logger) int {
	p, err := newProlog(config, getenv, log)
	if err != nil {
		return 1
	}
	// A context without deadline: gRPC would send a deadline to the broker, whose end of the stream could come first and
	// look like a lost broker.
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	defer time.AfterFunc(config.PrologLimit, cancel).Stop()
	p.teller = newTeller(p)
	result, reason := p.ensure(ctx)
	if result != ready && result != gone {
		p.teller.say(reason)
	}
	p.teller.end()
	return p.end(result, reason)
}

// ensure asks the broker until there is an outcome and a reason.
func (p *prolog) ensure(ctx context.Context) (outcome, string) {
	conn, err := dial(p.config)
	if err != nil {
		return unreachable, err.Error()
	}
	defer func() { _ = conn.Close() }()
	service := api.NewAllocationServiceClient(conn)
	pause, lost := retryPauseMin, time.Time{}
	for {
		result, last, err := p.follow(ctx, service)
		if err == nil {
			return result, last.message
		}
		if ctx.Err() != nil {
			return late, fmt.Sprintf("no kernel within %v, last progress: %s", p.config.PrologLimit, cmp.Or(last.message, status.Convert(err).Message()))
		}
		if !transient(err) {
			return refused, status.Convert(err).Message()
		}
		if !last.at.IsZero() || lost.IsZero() {
			lost, pause = time.Now(), retryPauseMin // a switch may be silent for long, and a broker hang; the loss is noticed now
		}
		// A broker that says when to retry is not lost.
		wait, retry := client.RetryAfter(err)
		if retry {
			lost = time.Now()
		}
		if time.Since(lost) > p.config.BrokerWait {
			return unreachable, status.Convert(err).Message()
		}
		if retry {
			text, _, _ := strings.Cut(status.Convert(err).Message(), ":")
			p.teller.say(text)
			p.log.Info("broker has no room yet, trying again", "reason", status.Convert(err).Message())
		} else {
			p.log.Warn("broker lost, trying again", "error", status.Convert(err).Message())
		}
		select {
		case <-ctx.Done():
		case <-time.After(max(wait, pause)):
		}
		pause = min(2*pause, retryPauseMax)
	}
}

// progress is the broker's latest progress.
type progress struct {
	at      time.Time
	message string
}

// follow reads one stream to its end. An error means that it broke off.
func (p *prolog) follow(ctx context.Context, service api.AllocationServiceClient) (outcome, progress, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var last progress
	waited := false
	stream, err := service.EnsureKernel(ctx, &api.EnsureKernelRequest{
		JobId: p.job.id.Job, RestartCount: p.job.id.Restart, Profile: p.job.profile, Nodes: p.job.nodes,
	})
	if err != nil {
		return "", last, err
	}
	for {
		response, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return "", last, status.Error(codes.Unavailable, "the broker ended the stream without an outcome")
		}
		if err != nil {
			return "", last, err
		}
		last = progress{time.Now(), response.GetMessage()}
		p.log.Info("progress", "phase", convert.Word(response.GetPhase()), "message", response.GetMessage(),
			"ready", response.GetNodesReady(), "nodes", response.GetNodesTotal())
		switch response.GetPhase() {
		case api.AllocationPhase_ALLOCATION_PHASE_READY:
			if waited {
				p.teller.say(fmt.Sprintf("ready, %[1]d of %[1]d nodes", response.GetNodesTotal()))
			}
			return ready, last, nil
		case api.AllocationPhase_ALLOCATION_PHASE_FAILED:
			return failed, last, nil
		case api.AllocationPhase_ALLOCATION_PHASE_RETURNING, api.AllocationPhase_ALLOCATION_PHASE_DONE:
			return gone, last, nil
		}
		waited = true
		p.teller.say(last.message)
	}
}

// transient errors go away when the broker comes back, or munged: a credential is also refused that a clock behind the
// broker's dates before its start.
func transient(err error) bool {
	switch status.Code(err) {
	case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.PermissionDenied,
		codes.FailedPrecondition, codes.OutOfRange, codes.Unimplemented:
		return false
	}
	return true
}

// end acts on an outcome and returns the exit code. It does not depend on the prolog's remaining time.
func (p *prolog) end(result outcome, reason string) int {
	ctx := context.Background()
	switch result {
	case ready:
		if err := p.tally.forget(p.job); err != nil {
			p.log.Warn("failures not forgotten", "error", err)
		}
		return 0
	case gone:
		// A slurmctld that was killed may have forgotten the job's nodes and allocated others while the broker released
		// the first.
		if starting, err := p.scontrol.starting(ctx, p.job); err != nil || !starting {
			p.log.Info("job has left, not started")
			return 0
		}
		p.log.Error("slurmctld starts a job that the broker has released")
		return p.requeue(ctx)
	}
	p.log.Error("no kernel for the job", "outcome", string(result), "reason", reason)
	starting, err := p.scontrol.starting(ctx, p.job)
	if err != nil {
		p.log.Warn("cannot ask slurmctld whether the job exists", "error", err)
	} else if !starting {
		p.log.Info("job has left, not requeued")
		return 0
	}
	switch result {
	case unreachable:
		p.count(ctx, "kernel-broker: broker unreachable, job held; ask your administrator, then scontrol release")
	case unread:
		p.count(ctx, "kernel-broker: PrologSlurmctld cannot read its settings, job held; ask your administrator, then scontrol release ("+reason+")")
	case refused:
		p.count(ctx, "kernel-broker: "+reason+"; job held")
	}
	return p.requeue(ctx)
}

// requeue puts the job back into the queue, unless its user has cancelled it by now, and returns the exit code. Exit 1
// would have slurmctld requeue a cancelled job, too. It is for jobs that slurmctld cannot requeue, an salloc for
// example, which it ends.
func (p *prolog) requeue(ctx context.Context) int {
	if err := p.scontrol.requeue(ctx, p.job); err != nil {
		p.log.Warn("job not requeued by scontrol, left to slurmctld", "error", err)
		return 1
	}
	return 0
}

// count records a failure that the broker cannot count, and holds the job after enough in a row.
func (p *prolog) count(ctx context.Context, reason string) {
	n, err := p.tally.add(p.job, time.Now())
	if err != nil {
		// Slurm counts too, whatever a job was requeued for.
		n = int(p.job.id.Restart) + 1
		p.log.Error("failure not counted, taking Slurm's count of restarts", "failures", n, "error", err)
	}
	if n < p.config.HoldAfter {
		p.log.Warn("job goes back to the queue", "failures", n, "held_at", p.config.HoldAfter)
		return
	}
	p.log.Error("job held", "failures", n, "comment", reason)
	if err := p.scontrol.hold(ctx, p.job, reason); err != nil {
		p.log.Error("job not held", "error", err)
		return
	}
	if err := p.tally.forget(p.job); err != nil {
		p.log.Warn("failures not forgotten", "error", err)
	}
}
