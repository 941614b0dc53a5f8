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
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/hostlist"
)

// runEpilog tells the broker that a job has ended. It is a hint that saves
// time: the broker looks at slurmctld itself, so nothing hangs on it.
func runEpilog(config client.Config, getenv func(string) string, log *slog.Logger) {
	j, err := jobOf(getenv)
	if err != nil {
		log.Error("environment not as slurmctld makes it", "error", err)
		return
	}
	log = log.With("job", j.reference, "restart", j.id.Restart)
	err = tell(config, epilogLimit, api.NewAllocationServiceClient, func(ctx context.Context, s api.AllocationServiceClient) error {
		_, err := s.ReleaseJob(ctx, &api.ReleaseJobRequest{JobId: j.id.Job, RestartCount: j.id.Restart})
		return err
	})
	if err != nil {
		log.Warn("broker not told of the job's end", "error", err)
		return
	}
	log.Info("broker told of the job's end")
}

// runReboot tells the broker that slurmctld wants nodes booted, a hint again. Nodes
// that an administrator reboots and that have no agent, or no broker, are left to
// the program that the site had for that.
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
	// Some time is left for what comes before and after.
	err = tell(config, rebootLimit-time.Second, api.NewAllocationServiceClient, func(ctx context.Context, s api.AllocationServiceClient) error {
		answer, err := s.NoteReboot(ctx, &api.NoteRebootRequest{Nodes: nodes, HasProgram: config.RebootProgram != ""})
		others = answer.GetWithoutAgent()
		return err
	})
	if err != nil {
		log.Warn("broker not told of the reboot", "nodes", len(nodes), "error", err)
		if config.RebootProgram == "" {
			return
		}
		if others, err = newScontrol(config).rebooted(nodes); err != nil {
			log.Error("slurmctld not asked which nodes an administrator reboots", "error", err)
			return
		}
	} else {
		log.Info("broker told of the reboot", "nodes", len(nodes))
	}
	if len(others) > 0 && config.RebootProgram != "" {
		log.Info("the site's own program reboots them", "program", config.RebootProgram, "nodes", strings.Join(others, ","))
		// In the place of this hook, as slurmctld ran it before: it may take as
		// long as it did.
		err := syscall.Exec(config.RebootProgram, []string{config.RebootProgram, strings.Join(others, ",")}, os.Environ()) //nolint:gosec // G204: the configured program, no shell
		log.Error("the site's own program does not start", "program", config.RebootProgram, "error", err)
	}
}

// tell makes a call, again while the broker is away and time is left.
func tell[C any](config client.Config, limit time.Duration, service func(grpc.ClientConnInterface) C, call func(context.Context, C) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	conn, err := client.Dial(config.Broker, config.Trust)
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
		// When time is up the call says no more than that; what it said before
		// tells why.
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

// phaseWord is the phase as people write it.
func phaseWord(phase api.AllocationPhase) string {
	return strings.ToLower(strings.TrimPrefix(phase.String(), "ALLOCATION_PHASE_"))
}
