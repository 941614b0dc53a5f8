// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/kernelbroker/kernelbroker/kernel-broker/api/client"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/munge"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/hostlist"
)

// runEpilog informs the broker that a job has ended. It is only a hint that saves time: the broker polls slurmctld
// itself.
func runEpilog(config client.Config, getenv func(string) string, log *slog.Logger) {
	j, err := jobOf(getenv)
	if err != nil {
		log.Error("environment not as slurmctld makes it", "error", err)
		return
	}
	log = log.With("job", j.reference, "restart", j.id.Restart)
	err = callBroker(config, epilogLimit, api.NewAllocationServiceClient, func(ctx context.Context, s api.AllocationServiceClient) error {
		_, err := s.ReleaseJob(ctx, &api.ReleaseJobRequest{JobId: j.id.Job, RestartCount: j.id.Restart})
		return err
	})
	if err != nil {
		log.Warn("job end not reported to the broker", "error", err)
		return
	}
	log.Info("job end reported to the broker")
}

// runReboot informs the broker that slurmctld wants nodes booted, again as a hint. Nodes rebooted by an administrator
// that have no agent or no broker are left to the site's own reboot program.
func runReboot(config client.Config, arguments []string, log *slog.Logger) {
	if len(arguments) == 0 {
		log.Error("no nodes named")
		return
	}
	nodes, err := hostlist.Expand(arguments[0])
	if err != nil {
		log.Error("nodes not understood", "error", err)
		return
	}
	var others []string
	// Leave some time for the steps before and after.
	err = callBroker(config, rebootLimit-time.Second, api.NewAllocationServiceClient, func(ctx context.Context, s api.AllocationServiceClient) error {
		answer, err := s.NoteReboot(ctx, &api.NoteRebootRequest{Nodes: nodes, HasProgram: config.RebootProgram != ""})
		others = answer.GetWithoutAgent()
		return err
	})
	if err != nil {
		log.Warn("reboot not reported to the broker", "nodes", len(nodes), "error", err)
		if config.RebootProgram == "" {
			return
		}
		if others, err = newScontrol(config).rebooted(nodes); err != nil {
			log.Error("cannot ask slurmctld which nodes an administrator reboots", "error", err)
			return
		}
	} else {
		log.Info("reboot reported to the broker", "nodes", len(nodes))
	}
	if len(others) > 0 && config.RebootProgram != "" {
		log.Info("the site's own program reboots them", "program", config.RebootProgram, "nodes", strings.Join(others, ","))
		// Replace this process, as slurmctld ran the program before: it may take as long as it did then.
		err := syscall.Exec(config.RebootProgram, []string{config.RebootProgram, strings.Join(others, ",")}, os.Environ()) //nolint:gosec // G204: the configured program, no shell
		log.Error("the site's own program does not start", "program", config.RebootProgram, "error", err)
	}
}

// runProfiling informs the broker of a job to be profiled and waits until its nodes are ready. The job starts in any
// case.
func runProfiling(config client.Config, getenv func(string) string, log *slog.Logger) {
	j, err := jobOf(getenv)
	if err != nil {
		log.Error("environment not as slurmctld makes it", "error", err)
		return
	}
	log = log.With("job", j.reference, "restart", j.id.Restart)
	var run *api.Run
	err = callBroker(config, config.ProfilingWait, api.NewRunServiceClient, func(ctx context.Context, s api.RunServiceClient) error {
		response, err := s.BeginRun(ctx, &api.BeginRunRequest{JobId: j.id.Job, RestartCount: j.id.Restart})
		run = response.GetRun()
		return err
	})
	if err != nil {
		log.Warn("job is not profiled", "error", err)
		return
	}
	log.Info("job begins", "run", run.GetId(), "collectors", run.GetCollectors())
}

// dial connects to the broker. On the host of a backup controller, which reaches it over the network, MUNGE proves to it
// that Slurm's user calls.
func dial(config client.Config) (*grpc.ClientConn, error) {
	return client.Dial(config.Broker, config.Trust,
		config.Proof(config.Broker, func(socket string) client.Encoder { return munge.New(socket) })...)
}

// callBroker makes a call, and retries while the broker is away and time is left.
func callBroker[C any](config client.Config, limit time.Duration, service func(grpc.ClientConnInterface) C, call func(context.Context, C) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	conn, err := dial(config)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	broker := service(conn)
	var last error
	for pause := retryPauseMin; ; pause = min(2*pause, retryPauseMax) {
		err := call(ctx, broker)
		if err == nil {
			return nil
		}
		// After the time limit only the earlier error explains the failure.
		if ctx.Err() == nil || last == nil {
			last = fmt.Errorf("%s: %s", status.Code(err), status.Convert(err).Message())
		}
		if !transient(err) || ctx.Err() != nil {
			return last
		}
		wait, _ := client.RetryAfter(err)
		select {
		case <-ctx.Done():
			return last
		case <-time.After(max(wait, pause)):
		}
	}
}
