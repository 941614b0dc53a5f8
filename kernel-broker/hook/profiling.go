// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"context"
	"log/slog"

	"github.com/kernelbroker/kernelbroker/kernel-broker/api/client"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

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
