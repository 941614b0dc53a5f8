// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"time"

	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/controller"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/plan"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/server"
)

// runsConfig bounds profiling runs.
type runsConfig struct {
	DeliverLimit         time.Duration `yaml:"deliver_limit"`
	RequestLimit         time.Duration `yaml:"request_limit"`
	OfUser               int           `yaml:"of_user"`
	controller.RunLimits `yaml:",inline"`
}

func defaultRuns() runsConfig {
	p := plan.Defaults()
	return runsConfig{p.RunDeliverLimit, p.RunRequestLimit, p.RunsOfUser, controller.DefaultRunLimits()}
}

// longestStandby: the hook of a plain job waits no longer, however it is set
// (profiling_wait of client.yaml).
const longestStandby = 10 * time.Minute

func (c runsConfig) validate() error {
	switch {
	case c.DeliverLimit < time.Second || c.RequestLimit < time.Minute:
		return errors.New("runs.deliver_limit must be at least 1s, and runs.request_limit 1m")
	case c.Standby <= 0 || c.Standby > longestStandby:
		return fmt.Errorf("runs.standby: %v is not within 0 to %v", c.Standby, longestStandby)
	case c.MaxBytes < 1<<20 || c.MaxBytes > math.MaxInt64:
		return fmt.Errorf("runs.max_bytes: %d is less than 1 MiB, or too large", c.MaxBytes)
	case c.Keep < 1 || c.OfUser < 1:
		return errors.New("runs.keep and runs.of_user must be at least 1")
	}
	return nil
}

// runService serves profiling runs.
func runService(c config, ctl *controller.Controller, files server.Artifacts, administrators []uint32) api.RunServiceServer {
	all := append([]uint32{0, uint32(os.Geteuid())}, administrators...)
	return server.NewRunService(server.RunOptions{Runs: ctl, Artifacts: files, MaxBytes: c.Runs.MaxBytes,
		// The other half of the store's places is for those who build kernels.
		Uploads:       max(1, c.Artifacts.MaxUploads/2),
		Administrator: func(caller server.Caller) bool { return caller.Local && slices.Contains(all, caller.UID) }})
}
