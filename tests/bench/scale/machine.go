// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/decide"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/link"
	"github.com/kernelbroker/kernelbroker/tests/emulated"
)

// What the steps of a machine take besides its boot.
const (
	slurmdStops  = 100 * time.Millisecond
	slurmdStarts = 100 * time.Millisecond
	// grace is how long a real node waits for the first word of a broker.
	grace = time.Minute
)

// floor is what all machines stand on.
type floor struct {
	broker    string
	slurmctld *slurmctld
	run       string // stands for the nodes' /run
	dials     atomic.Int64
	epochs    epochs
}

// machine is a node: the product's agent over a machine of which only the time that its steps take is real.
type machine struct {
	*floor
	name    string
	address *net.TCPAddr // that it dials from: the broker limits connections by address
	who     *identity
	state   string // path of node.state

	mu     sync.Mutex
	boot   kb.Boot
	slurmd decide.Slurmd
	link   *link.Link // nil while it boots
	loaded *decide.Target
	heard  link.Status     // the last desired state, with the broker's epoch
	cached map[string]bool // images, by digest
	// boots counts those that it left, and spent is what the simulated steps took.
	boots int
	left  bool // this boot
	spent time.Duration
	leave context.CancelFunc // ends what runs
}

// newMachine makes the node of a number, which has the address 127.1.0.1 or one behind it.
func newMachine(f *floor, number int, who *identity) *machine {
	return &machine{floor: f, name: nodeName(number), who: who, cached: map[string]bool{}, state: filepath.Join(f.run, nodeName(number), "node.state"),
		address: &net.TCPAddr{IP: net.IPv4(127, 1, byte(number>>8), byte(number))}}
}

// nodeName of the nodes 1, 2, ...
func nodeName(number int) string { return fmt.Sprintf("n%05d", number) }

// with changes what the machine's parts share.
func (m *machine) with(change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
}

// life of the machine: boots, until the context ends.
func (m *machine) life(ctx context.Context) error {
	if err := os.MkdirAll(filepath.Dir(m.state), 0o755); err != nil {
		return err
	}
	for {
		m.with(m.comeUp)
		if err := m.live(ctx); err != nil || ctx.Err() != nil {
			return err
		}
		_ = m.take(ctx, bootTime) // an end is seen in the next boot
	}
}

// comeUp boots what is loaded, or else what firmware boots: everything volatile is gone.
func (m *machine) comeUp() {
	kernel, token := emulated.KernelNamed(emulated.StockName), ""
	if m.loaded != nil {
		kernel, token = emulated.KernelNamed(m.loaded.Kernel.Profile), m.loaded.Token
	}
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	_ = os.Remove(m.state)  // the first boot has none
	m.slurmd, m.loaded, m.left = decide.Slurmd{}, nil, false
	m.boot = kb.Boot{BootID: hex.EncodeToString(id[:]), BuildID: kernel.BuildID, Release: kernel.Release, Token: token, BootedAt: time.Now()}
}

// live runs an agent as its program does, until the machine leaves this boot.
func (m *machine) live(ctx context.Context) (err error) {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	var node *agent.Agent
	stream, err := link.New(link.Options{
		Broker: m.broker, Source: m.who, Log: slog.New(&m.epochs), Snapshot: func(string) error { return nil },
		Dial: func(ctx context.Context, address string) (net.Conn, error) {
			m.dials.Add(1)
			return (&net.Dialer{LocalAddr: m.address}).DialContext(ctx, "tcp", address)
		},
		Hello: func() kb.Hello {
			hello := node.Hello("kb-bench")
			hello.Boot.Up = time.Since(hello.Boot.BootedAt)
			return hello
		},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stream.Close()) }()
	stream.Connect()
	m.with(func() { m.link, m.leave = stream, leave })
	defer m.with(func() { m.link = nil })
	node, err = agent.New(agent.Parts{
		Node: m.name, Boot: m.boot, Link: listener{stream, m}, Booter: m, Slurmd: m, NodeState: m.state, Grace: grace, Log: quiet,
		Inventory: func() (kb.Inventory, error) {
			return kb.Inventory{Architecture: "x86_64", MemoryMiB: 1024, CPUs: 2, RootDevice: "/dev/vda1", RootFilesystem: drivers[0], Drivers: drivers,
				Hardware: kb.Hardware{Board: "Bench-1", Firmware: "1.0", NIC: "virtio_net@1af4:1000"}}, nil
		},
		Loaded: func() (bool, error) { return false, nil },
		Settle: func(context.Context) {}, Sync: func() {},
		Reboot: func(context.Context) error {
			m.depart(nil)
			return nil
		},
	})
	if err != nil {
		return err
	}
	var parts sync.WaitGroup
	parts.Go(func() { stream.Run(ctx) })
	parts.Go(func() { node.Run(ctx) })
	parts.Wait()
	return nil
}

// take passes simulated time.
func (m *machine) take(ctx context.Context, d time.Duration) error {
	begun := time.Now()
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	m.with(func() { m.spent += time.Since(begun) })
	return ctx.Err()
}

// depart leaves this boot, for what is loaded or for firmware.
func (m *machine) depart(loaded *decide.Target) {
	m.with(func() {
		if m.left {
			return // an agent whose context ends may take one more step
		}
		m.loaded, m.left = loaded, true
		m.boots++
		m.leave()
	})
}

// Fetch implements agent.Booter: from the broker, once.
func (m *machine) Fetch(ctx context.Context, t decide.Target) error {
	if m.cached[t.Kernel.ImageDigest] { // an agent does one step at a time
		return nil
	}
	image, err := m.link.Fetch(ctx, t.Kernel.ImageDigest)
	if err != nil {
		return err
	}
	defer image.Close()
	if _, err = io.Copy(io.Discard, image); err == nil {
		m.cached[t.Kernel.ImageDigest] = true
	}
	return err
}

// Load implements agent.Booter.
func (m *machine) Load(_ context.Context, t decide.Target) error {
	m.with(func() { m.loaded = &t })
	return nil
}

// Unload implements agent.Booter.
func (m *machine) Unload(context.Context) error {
	m.with(func() { m.loaded = nil })
	return nil
}

// Admit implements agent.Booter.
func (m *machine) Admit(context.Context, decide.Target) error { return nil }

// Prepare implements agent.Booter.
func (m *machine) Prepare(context.Context) error { return nil }

// Execute implements agent.Booter.
func (m *machine) Execute(ctx context.Context) error {
	m.depart(m.loaded)
	<-ctx.Done() // as a kexec, which does not return
	return nil
}

// Observe implements agent.Slurmd.
func (m *machine) Observe() (decide.Slurmd, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.slurmd, nil
}

// Start implements agent.Slurmd: a slurmd registers as soon as it runs.
func (m *machine) Start(ctx context.Context, start uint64, claim bool) error {
	if err := m.take(ctx, slurmdStarts); err != nil {
		return err
	}
	m.with(func() { m.slurmd = decide.Slurmd{Running: true, Mark: decide.Started, Start: start} })
	m.slurmctld.register(m.name, claim)
	return nil
}

// Stop implements agent.Slurmd.
func (m *machine) Stop(ctx context.Context) error {
	err := m.take(ctx, slurmdStops)
	if err == nil {
		m.with(func() { m.slurmd = decide.Slurmd{Mark: decide.Stopped, Start: m.slurmd.Start} })
	}
	return err
}

// session is a stream of a machine's agent, in a boot; zero is none.
type session struct {
	boot   int
	stream uint64
}

// acknowledged is the session over which the broker has acknowledged what the node runs.
func (m *machine) acknowledged() (now session) {
	m.with(func() {
		if m.link == nil {
			return
		}
		if s := m.link.Status(); s.Fresh && s.Desired.Attested {
			now = session{m.boots, s.Session}
		}
	})
	return now
}

// history is how many boots the machine has left, and what its simulated steps took.
func (m *machine) history() (boots int, spent time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.boots, m.spent
}
