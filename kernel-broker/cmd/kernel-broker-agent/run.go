// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/config"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/inventory"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/kexec"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/link"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/local"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/modules"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/proof"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/runs"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/slurmd"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/mtls"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/atomicfile"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/notify"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/openretry"
)

// run puts the agent together and runs it until the context ends.
func run(ctx context.Context, c config.Config, log *slog.Logger) (err error) {
	log.Info("agent starts", "node", c.Node, "version", version)
	service := notify.New(log)
	defer service.Stopping()
	enroller, source := certificates(c, log)
	// The link says hello for the agent, and the agent reports by the link.
	var node *agent.Agent
	var keeper *runs.Keeper
	var loader *modules.Loader
	stream, err := link.New(link.Options{
		Broker: c.Broker,
		Source: source,
		Hello: func() kb.Hello {
			hello := node.Hello(version)
			hello.Boot.Modules, hello.Boot.ModulesFault = loader.State()
			return hello
		},
		Snapshot: func(text string) error { return keepSnapshot(c.Snapshot, text) },
		Runs:     func(desired []kb.DesiredRun) { keeper.Desire(desired) },
		Log:      log,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stream.Close()) }()
	if enroller == nil || enroller.Certified() {
		stream.Connect() // while the proof is read; nothing is sent before that
	}
	proven, err := proof.Read(c.Proc, c.Sys)
	if err != nil {
		return fmt.Errorf("proof of this boot: %w", err)
	}
	cache, err := openretry.Open(ctx, openretry.Patience, kexec.ErrInUse, func() (*kexec.Cache, error) {
		return kexec.OpenCache(c.Cache.Dir, c.Cache.MaxBytes, stream.Fetch, log)
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cache.Close()) }()
	loader, err = newLoader(c, proven, cache, log)
	if err != nil {
		return err
	}
	keeper = newKeeper(c, proven, stream, log)
	defer keeper.Close()

	daemon := newSlurmd(c, proven, log)
	tools, err := newKexec(c)
	if err != nil {
		return err
	}
	node, err = agent.New(agent.Parts{
		Node: c.Node, Configuration: c.Digest, Boot: proven, Link: stream, Loaded: tools.Loaded,
		Inventory: func() (kb.Inventory, error) {
			found, err := inventory.Read(c.Proc, c.Sys, c.Boot.ExtraDrivers)
			if c.Boot.Initrd != "" {
				found.InitrdRoot, found.InitrdModule = "", ""
			}
			return found, err
		},
		Booter: &kexec.Booter{
			Tools: tools, Artifacts: cache, Trust: newVerifier(c.Trust, log),
			Keep: kexec.Keep(c.Boot.KeepArguments), Initrd: c.Boot.Initrd, Proc: c.Proc,
			Topology: func() (kb.Topology, error) { return inventory.Topology(c.Sys) },
		},
		Settle:    func(ctx context.Context) { keeper.Settle(ctx, c.Profiling.Settle) },
		Slurmd:    daemon,
		NodeState: c.NodeState, Grace: c.BrokerGrace, Awaited: awaited(c), Reboot: agent.RebootBy(c.Reboot.Command), Sync: syscall.Sync, Log: log,
		Alive: func(connected bool) {
			service.Alive()
			service.Status(streamStatus(connected, c.Broker))
		},
	})
	if err != nil {
		return err
	}
	server, err := local.NewServer(c.Socket, node, log)
	if err != nil {
		return err
	}
	// Before slurmd is started: systemd starts that after the agent.
	service.Ready(streamStatus(false, c.Broker))
	return serve(ctx, node, stream, server, enroller, cache, loader)
}

func newKexec(c config.Config) (kexec.Kexec, error) {
	networkRoot, err := inventory.NetworkRoot(c.Proc)
	if err != nil {
		return kexec.Kexec{}, fmt.Errorf("root device: %w", err)
	}
	return kexec.Kexec{Program: c.Kexec.Program, LoadArgs: c.Kexec.LoadArgs, ExecuteArgs: c.Kexec.ExecuteArgs, Sys: c.Sys,
		NetworkRoot: networkRoot,
		Shutdown:    kexec.Shutdown{Before: c.Kexec.Before, Limit: c.Kexec.BeforeTimeout, Command: c.Kexec.Execute}}, nil
}

func newSlurmd(c config.Config, boot kb.Boot, log *slog.Logger) *slurmd.Slurmd {
	daemon := &slurmd.Slurmd{
		StartCommand: c.Slurmd.Start, PlainCommand: c.Slurmd.FirstStart, StopCommand: c.Slurmd.Stop, FailedCommand: c.Slurmd.Failed(), PIDFile: c.Slurmd.PIDFile, MarkFile: c.Slurmd.MarkFile,
		StartTimeout: c.Slurmd.StartTimeout, StopTimeout: c.Slurmd.StopTimeout, BootID: boot.BootID,
	}
	if err := daemon.DropClaim(); err != nil {
		log.Error("a start of slurmd by others may report a boot", "error", err)
	}
	return daemon
}

// awaited asks Slurm whether it waits for a boot of the node, where the node has scontrol.
func awaited(c config.Config) func(context.Context) (bool, error) {
	if c.Slurmd.Scontrol == "" {
		return nil
	}
	return func(ctx context.Context) (bool, error) { return slurmd.Awaited(ctx, c.Slurmd.Scontrol, c.Node) }
}

// newLoader is for the modules that the command line names; firmware boots no kernel with any.
func newLoader(c config.Config, boot kb.Boot, cache *kexec.Cache, log *slog.Logger) (*modules.Loader, error) {
	line, err := os.ReadFile(filepath.Join(c.Proc, "cmdline"))
	if err != nil {
		return nil, err
	}
	loader := &modules.Loader{Boot: boot, Dir: filepath.Join(filepath.Dir(c.NodeState), "modules"), Tree: "/lib/modules",
		Archives: cache, Insert: modules.InsertModule, Log: log}
	if boot.Token != "" {
		loader.Arguments = proof.Split(string(line))
		loader.Wanted = proof.Value(loader.Arguments, kb.ModulesParameter)
	}
	return loader, nil
}

func streamStatus(connected bool, broker string) string {
	if connected {
		return "connected to the broker at " + broker
	}
	return "connects to the broker at " + broker
}

// certificates returns the node's credentials for the broker and, if the agent manages them itself, their enroller.
func certificates(c config.Config, log *slog.Logger) (*link.Enroller, mtls.Source) {
	switch c.TLS.Mode {
	case config.TLSNone:
		log.Warn("TLS IS OFF (tls.mode: none): any host at the broker's address can make this node boot any kernel", "broker", c.Broker)
		return nil, nil
	case config.TLSSite:
		return nil, mtls.NewFiles(mtls.Paths{Certificate: c.TLS.Certificate, Key: c.TLS.Key, Authorities: c.TLS.Authorities})
	}
	enroller := link.NewEnroller(link.EnrolOptions{
		Node: c.Node, Broker: c.Broker, Paths: mtls.NodePaths(c.TLS.Dir), TokenFile: c.TLS.Token, Log: log,
	})
	return enroller, enroller.Source()
}

// newVerifier logs how far kernels are trusted, which boots do not show.
func newVerifier(c config.Trust, log *slog.Logger) *kexec.Verifier {
	switch {
	case c.List == "":
		log.Warn("signatures are not checked: there is no trust list; kernels are checked by the broker's digests alone")
		return nil
	case !c.Required():
		log.Warn("signatures are not required: kernels refused by the trust list are booted", "list", c.List)
	default:
		log.Info("signatures are required", "list", c.List)
	}
	return &kexec.Verifier{List: c.List, State: c.State, Required: c.Required(), Stock: c.StockFiles, Now: time.Now, Log: log}
}

// serve runs the parts; when one ends, so do the others.
func serve(ctx context.Context, node *agent.Agent, stream *link.Link, server *local.Server, enroller *link.Enroller, cache *kexec.Cache, loader *modules.Loader) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var parts sync.WaitGroup
	defer parts.Wait()
	if enroller != nil {
		parts.Go(func() { enroller.Run(ctx) })
	}
	parts.Go(func() {
		if enroller != nil {
			select {
			case <-enroller.Ready(): // a broker would refuse the node before
			case <-ctx.Done():
				return
			}
		}
		loader.Run(ctx) // which modules are loaded is part of what the stream begins with
		stream.Run(ctx)
	})
	parts.Go(func() { node.Run(ctx) })
	parts.Go(func() { node.PrepareWhenIdle(ctx, cache.Prepare) })
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
