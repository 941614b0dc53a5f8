// SPDX-License-Identifier: Apache-2.0

package corenoise

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/kernelbroker/kernelbroker/kernel-broker/agent"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect/noise"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
	"github.com/kernelbroker/kernelbroker/tests/bench/collectcost"
	"github.com/kernelbroker/kernelbroker/tests/jsonfile"
)

const (
	hierarchy = "/sys/fs/cgroup"
	noiseFile = "noise.json"
	// cores of a guest. The first is the system's, or nobody's.
	cores = 4
)

// Guest has a thread compute on each application core for so many milliseconds, and leaves what took the cores away.
func Guest(ctx context.Context, milliseconds int) error {
	// What does not belong to the job is on the first core, as an agent and all of a node's services are.
	if err := agent.KeepTo([]int{0}); err != nil {
		return err
	}
	top := filepath.Join(hierarchy, "job_1")
	step := filepath.Join(top, "step_0")
	if err := os.MkdirAll(step, 0o755); err != nil {
		return err
	}
	group, err := os.Open(step)
	if err != nil {
		return err
	}
	defer group.Close()
	folder, err := os.MkdirTemp("", "run")
	if err != nil {
		return err
	}
	run, err := collect.Start(collect.Request{Job: 1, Node: "n1", Kernel: profiling.Kernel{Release: "measured"}, Cgroup: top, Folder: folder},
		[]collect.Collector{noise.Collector{}}, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	var threads []*exec.Cmd
	for core := 1; core < cores; core++ {
		cmd := exec.CommandContext(ctx, "known", "busy", strconv.Itoa(core), strconv.Itoa(milliseconds))
		cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(group.Fd())}
		if err := cmd.Start(); err != nil {
			return err
		}
		threads = append(threads, cmd)
	}
	for _, cmd := range threads {
		err = errors.Join(err, cmd.Wait())
	}
	if err != nil {
		return fmt.Errorf("a thread that computes: %w", err)
	}
	result, err := collectcost.Finish(ctx, run)
	if err != nil {
		return err
	}
	return jsonfile.Write(filepath.Join("/out", noiseFile), result.Noise)
}
