// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect/callcounts"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect/callgraph"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect/files"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect/noise"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect/pgo"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect/syscalls"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/config"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/inventory"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/runs"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
)

// slurmGrace is added to the start limit of slurmd: the broker permits its
// start only after the proof.
const slurmGrace = 30 * time.Second

// newKeeper has the collectors of this node behind it.
func newKeeper(c config.Config, boot kb.Boot, broker runs.Broker, log *slog.Logger) *runs.Keeper {
	return runs.New(runs.Options{
		Node: c.Node, Broker: broker, Dir: c.Profiling.Dir, Sockets: c.Profiling.Sockets, Cgroups: c.Profiling.Cgroups,
		MaxBytes: c.Profiling.MaxBytes, MaxRuns: c.Profiling.MaxRuns, SlurmLimit: c.Slurmd.StartTimeout + slurmGrace, Log: log,
		Collectors: collectors{node: c.Node, buildID: boot.BuildID, kernel: sync.OnceValue(func() profiling.Kernel { return runningKernel(boot) }),
			most: c.Profiling.MaxBytes, overhead: c.Profiling.OverheadPercent / 100, log: log},
	})
}

// runningKernel describes the running kernel for results. To read its configuration takes a while, which a node that
// starts does not have.
func runningKernel(boot kb.Boot) profiling.Kernel {
	k := profiling.Kernel{Release: boot.Release, BuildID: boot.BuildID}
	if built := inventory.Symbols("/", boot.Release); built != nil {
		k.Lacks = profiling.Lacking(func(symbol string) bool { return built[symbol] })
	}
	return k
}

// collectors implements runs.Collectors.
type collectors struct {
	node     string
	buildID  string
	kernel   func() profiling.Kernel
	most     int
	overhead float64
	log      *slog.Logger
}

// named returns the known collectors. An unknown name from a newer broker is refused alone.
func (c collectors) named(names []string) (found []collect.Collector, unknown []error) {
	have := map[profiling.Collector]collect.Collector{
		profiling.CollectIO: files.Collector{}, profiling.CollectSyscalls: syscalls.Collector{},
		profiling.CollectCallgraph: callgraph.Collector{}, profiling.CollectNoise: noise.Collector{},
		profiling.CollectPGO: pgo.Collector{BuildID: c.buildID}, profiling.CollectCallCounts: callcounts.Collector{},
	}
	for _, name := range names {
		if one, has := have[profiling.Collector(name)]; has {
			found = append(found, one)
		} else {
			unknown = append(unknown, fmt.Errorf("collector %q: %w on this node", name, profiling.ErrCollector))
		}
	}
	return found, unknown
}

// Check implements runs.Collectors.
func (c collectors) Check(names []string) []error {
	found, wrong := c.named(names)
	for _, one := range found {
		if err := one.Check(); err != nil {
			wrong = append(wrong, err)
		}
	}
	return wrong
}

// Begin implements runs.Collectors.
func (c collectors) Begin(r runs.Request) (runs.Session, error) {
	found, unknown := c.named(r.Collectors)
	if len(found) == 0 {
		return nil, fmt.Errorf("job %d: no collector can start: %v", r.Job.Job, unknown)
	}
	return collect.Start(collect.Request{
		Job: r.Job.Job, Restart: r.Job.Restart, Node: c.node, Kernel: c.kernel(), Cgroup: r.Cgroup, Folder: r.Folder,
		Overhead: c.overhead, MostBytes: c.most, Socket: r.Socket, Owner: int(r.UID),
	}, found, c.log)
}
