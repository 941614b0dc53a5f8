// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"syscall"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/boot"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/cmdline"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/config"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/enrol"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/inventory"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/kexec"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/link"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/local"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/proof"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/runs"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/slurmd"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/trust"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/artifact"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/atomicfile"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/openretry"
)

// run puts the agent together and runs it until the context ends.
func run(ctx context.Context, c config.Config, log *slog.Logger) (err error) {
	log.Info("agent starts", "node", c.Node, "version", version)
	proven, err := proof.Read(c.Proc, c.Sys)
	if err != nil {
		return fmt.Errorf("proof of this boot: %w", err)
	}
	cache, err := openretry.Open(ctx, openretry.Patience, artifact.ErrInUse, func() (*artifact.Cache, error) {
		return artifact.OpenCache(c.Cache.Dir, int64(c.Cache.MaxBytes), log)
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cache.Close()) }()

	enroller, source := certificates(c, log)
	// The link says hello for the agent, and the agent reports by the link.
	var node *agent.Agent
	var keeper *runs.Keeper
	stream, err := link.New(link.Options{
		Broker:   c.Broker,
		Source:   source,
		Hello:    func() kb.Hello { return node.Hello(version) },
		Snapshot: func(text string) error { return keepSnapshot(c.Snapshot, text) },
		Runs:     func(wishes []kb.DesiredRun) { keeper.Desire(wishes) },
		Log:      log,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stream.Close()) }()
	keeper = newKeeper(c, proven, stream, log)
	defer keeper.Close()

	var awaited func(context.Context) (bool, error)
	if c.Slurmd.Scontrol != "" {
		awaited = func(ctx context.Context) (bool, error) { return slurmd.Awaited(ctx, c.Slurmd.Scontrol, c.Node) }
	}
	tools := kexec.Kexec{Program: c.Kexec.Program, LoadArgs: c.Kexec.LoadArgs, ExecuteArgs: c.Kexec.ExecuteArgs, Sys: c.Sys}
	kernels := &artifacts{cache: cache, limit: c.Cache.MaxBytes, fetch: stream.Fetch}
	node, err = agent.New(agent.Parts{
		Node: c.Node, Boot: proven, Link: stream, Loaded: tools.Loaded,
		Inventory: func() (kb.Inventory, error) { return inventory.Read(c.Proc, c.Sys, c.Boot.ExtraDrivers) },
		Booter: settling{keeper: keeper, limit: c.Profiling.Settle, Booter: &boot.Booter{
			Artifacts: kernels, Tools: tools, Keep: cmdline.Keep(c.Boot.KeepArguments), Initrd: c.Boot.Initrd,
			Proc: c.Proc, BadImage: kexec.ErrImage, Trust: newGuard(c.Trust, log), Refused: trust.ErrRefused,
		}},
		Slurmd: &slurmd.Slurmd{
			StartCommand: c.Slurmd.Start, PlainCommand: c.Slurmd.FirstStart, StopCommand: c.Slurmd.Stop, PIDFile: c.Slurmd.PIDFile, MarkFile: c.Slurmd.MarkFile,
			StartTimeout: c.Slurmd.StartTimeout, StopTimeout: c.Slurmd.StopTimeout, BootID: proven.BootID,
		},
		NodeState: c.NodeState, Grace: c.BrokerGrace, Awaited: awaited, Reboot: agent.RebootBy(c.Reboot.Command), Sync: syscall.Sync, Log: log,
	})
	if err != nil {
		return err
	}
	server, err := local.Listen(c.Socket, node, log)
	if err != nil {
		return err
	}
	return serve(ctx, node, stream, server, enroller, func(ctx context.Context) { prepareWhenIdle(ctx, kernels, node.Status, log) })
}

// newGuard logs how far kernels are trusted, which boots do not show.
func newGuard(c config.Trust, log *slog.Logger) *trust.Guard {
	switch {
	case c.List == "":
		log.Warn("signatures are not checked: there is no trust list; kernels are checked by the broker's digests alone")
		return nil
	case !c.Required():
		log.Warn("signatures are not required: kernels refused by the trust list are booted", "list", c.List)
	default:
		log.Info("signatures are required", "list", c.List)
	}
	return &trust.Guard{List: c.List, State: c.State, Required: c.Required(), Stock: c.StockFiles, Now: time.Now, Log: log}
}

// serve runs the parts; when one ends, so do the others.
func serve(ctx context.Context, node *agent.Agent, stream *link.Link, server *local.Server, enroller *enrol.Enroller, idle func(context.Context)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var parts sync.WaitGroup
	defer parts.Wait()
	if enroller != nil {
		parts.Go(func() { enroller.Run(ctx) })
	}
	parts.Go(func() {
		if certified(ctx, enroller) {
			stream.Run(ctx)
		}
	})
	parts.Go(func() { node.Run(ctx) })
	parts.Go(func() { idle(ctx) })
	err := server.Serve(ctx)
	cancel()
	return err
}

// keepSnapshot rejects a truncated text and keeps the old catalog.
func keepSnapshot(path, text string) error {
	if !strings.HasPrefix(text, "kernel-broker-snapshot 1\n") || !strings.HasSuffix(text, "\nend\n") {
		return fmt.Errorf("catalog snapshot of %d bytes is not whole: %w", len(text), kb.ErrInvalid)
	}
	return atomicfile.Write(path, []byte(text), 0o644)
}
