// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"

	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store/etcdstore"
	"github.com/kernelbroker/kernelbroker/tests/emulated"
)

// FaultOptions are of a run of faults.
type FaultOptions struct {
	Options
	// Times is how often each of the Kinds happens, Stop how long a broker is stopped or cut off.
	Times int
	Kinds []string
	Stop  time.Duration
}

const (
	// answerTime is the most that one question to a part may take.
	answerTime = time.Second
	// look is how often the harness looks; no figure is more exact.
	look = 10 * time.Millisecond
	// watched is how long a broker that has lost its turn is watched.
	watched = 3 * time.Second
	// follows is when something has to have followed a fault, in the end.
	follows = 3 * time.Minute
	// memberAway is how long a killed member of etcd stays away.
	memberAway = 5 * time.Second
)

// host is a broker with its commands and its wires to etcd.
type host struct {
	*broker
	wires []*wire

	mu       sync.Mutex
	watched  bool     // it may give no command
	commands []string // that it gave all the same
}

// run notes a command by which a broker that does not act changes something. It may still read.
func (h *host) run(s *slurmctld) runner {
	return func(program string, words []string) (string, error) {
		h.mu.Lock()
		if h.watched && program != "squeue" && words[0] != "show" && !slices.Contains(words, "show") {
			h.commands = append(h.commands, time.Now().Format("05.000 ")+program+" "+strings.Join(words, " "))
		}
		h.mu.Unlock()
		return s.run(program, words)
	}
}

// watch begins or ends to note commands, and returns those until now.
func (h *host) watch(on bool) (commands []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	commands, h.commands, h.watched = h.commands, nil, on
	return commands
}

func (h *host) pid() string { return fmt.Sprintf(" pid %d,", h.cmd.Process.Pid) }

// faults is a site with two brokers and an etcd of three members, on which jobs run all the time.
type faults struct {
	*site
	o     FaultOptions
	etcd  *members
	kept  *etcdstore.Store
	hosts []*host
	tally tally
	jobID atomic.Uint32
}

// kinds are the faults that there are, in their order. Each has the fault happen and end, and notes what followed.
var kinds = []struct {
	name string
	run  func(f *faults, ctx context.Context, t *Faults) error
}{
	{"kill", (*faults).killActing}, {"stop", (*faults).stopActing}, {"cut", (*faults).cutActing},
	{"member", func(f *faults, ctx context.Context, t *Faults) error { return f.killMember(ctx, t, false) }},
	{"leader", func(f *faults, ctx context.Context, t *Faults) error { return f.killMember(ctx, t, true) }},
}

// FaultKinds names them.
func FaultKinds() (all []string) {
	for _, k := range kinds {
		all = append(all, k.name)
	}
	return all
}

// RunFaults has each kind of fault happen while jobs run. With an error it returns what was measured until then.
func RunFaults(ctx context.Context, o FaultOptions, progress io.Writer) (result *FaultResult, err error) {
	for _, kind := range o.Kinds {
		if !slices.Contains(FaultKinds(), kind) {
			return nil, fmt.Errorf("--kinds: %q is none of %s", kind, strings.Join(FaultKinds(), ", "))
		}
	}
	nodes := o.Nodes[0]
	if nodes < jobNodes || nodes%jobNodes != 0 || o.Times < 1 {
		return nil, fmt.Errorf("--nodes: a multiple of %d; --times: at least 1", jobNodes)
	}
	if o.Slurm, err = filepath.Abs(o.Slurm); err != nil {
		return nil, err
	}
	if err := moreFiles(2 * nodes); err != nil {
		return nil, err
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	f, err := newFaults(ctx, o, nodes, fail, progress)
	if f != nil {
		defer f.close()
	}
	if err != nil {
		return nil, err
	}
	result = &FaultResult{Begun: time.Now(), Nodes: nodes, Load: load()}
	f.switchOn(ctx)
	if err := f.connected(ctx, nil); err != nil {
		return nil, err
	}
	var jobs sync.WaitGroup
	work, rest := context.WithCancel(ctx)
	for group := range slices.Chunk(f.machines, jobNodes) {
		jobs.Go(func() {
			if err := f.work(work, ctx, group); err != nil {
				fail(err)
			}
		})
	}
	for _, kind := range kinds {
		if err == nil && slices.Contains(o.Kinds, kind.name) {
			var t Faults
			t, err = f.repeat(ctx, kind.name, kind.run)
			result.Kinds, result.Load = append(result.Kinds, t), max(result.Load, load())
		}
	}
	rest()
	jobs.Wait()
	return result, errors.Join(err, context.Cause(ctx))
}

// newFaults starts etcd and both brokers, which share a data folder.
func newFaults(ctx context.Context, o FaultOptions, nodes int, fail context.CancelCauseFunc, progress io.Writer) (f *faults, err error) {
	s, err := emptySite(o.Options, nodes, fail, progress)
	if err != nil {
		return nil, err
	}
	f = &faults{site: s, o: o}
	if f.etcd, err = newMembers(filepath.Join(s.dir, "etcd"), 3); err != nil {
		return f, err
	}
	for i := range f.etcd.cmds {
		if err := f.etcd.start(i); err != nil {
			return f, err
		}
	}
	if err := f.until(ctx, limit, "etcd has a leader", func() bool { _, err := f.etcd.leader(ctx); return err == nil }); err != nil {
		return f, err
	}
	if f.kept, err = etcdstore.Open(ctx, etcdstore.Config{Endpoints: f.etcd.endpoints, Cluster: cluster, Logger: quiet}); err != nil {
		return f, err
	}
	for i := range 2 {
		if err := f.addHost(fmt.Sprintf("host%d", i), nodes); err != nil {
			return f, err
		}
	}
	if f.broker, err = f.newBroker("hooks", f.slurmctld.run); err != nil { // on no broker's host: its commands are counted
		return f, err
	}
	f.floor.broker = f.hosts[0].address + "," + f.hosts[1].address
	f.say("keys and certificates")
	first := f.hosts[0]
	if err := errors.Join(f.broker.configureHooks(f.hosts[0].broker, f.hosts[1].broker), first.start(fail)); err != nil {
		return f, err
	}
	if err := first.call(func(conn *grpc.ClientConn) error {
		return register(ctx, conn, emulated.StockName, profile)
	}); err != nil {
		return f, err
	}
	first.stop(syscall.SIGTERM)
	identities, err := enrolIn(ctx, f.kept, filepath.Join(f.dir, keyFile), s.slurmctld.names)
	if err != nil {
		return f, err
	}
	f.build(identities)
	for _, h := range f.hosts {
		if err := h.start(fail); err != nil {
			return f, err
		}
	}
	return f, nil
}

func (f *faults) addHost(name string, nodes int) error {
	h := &host{}
	var err error
	h.broker, err = f.newBroker(name, h.run(f.slurmctld))
	if err != nil {
		return err
	}
	var endpoints []string
	for _, endpoint := range f.etcd.endpoints {
		w, err := newWire(endpoint)
		if err != nil {
			return err
		}
		h.wires, endpoints = append(h.wires, w), append(endpoints, w.endpoint())
	}
	h.data = h.path("data")
	h.more = fmt.Sprintf("store_key_file: %s\netcd: {endpoints: [%s]}\n", filepath.Join(f.dir, keyFile), strings.Join(endpoints, ", "))
	f.hosts = append(f.hosts, h)
	return h.configure(nodes, f.slurmctld.user)
}

func (f *faults) close() {
	for _, h := range f.hosts {
		if h.cmd != nil {
			_ = h.cmd.Process.Signal(syscall.SIGCONT) // it may have ended
		}
		h.stop(os.Kill)
		for _, w := range h.wires {
			w.Close()
		}
	}
	f.site.close()
	if f.kept != nil {
		_ = f.kept.Close()
	}
	if f.etcd != nil {
		f.etcd.close()
	}
}

// repeat has a fault happen as often as is asked for.
func (f *faults) repeat(ctx context.Context, kind string, run func(*faults, context.Context, *Faults) error) (t Faults, err error) {
	t = Faults{Kind: kind}
	f.tally.take()
	f.slurmctld.drained()
	_, _, late := f.epochs().now()
	for range f.o.Times {
		if err = f.ready(ctx); err == nil {
			err = pass(ctx, rand.N(4*time.Second)) // anywhere in the jobs' lives
		}
		if err == nil {
			err = run(f, ctx, &t)
		}
		if err != nil {
			err = fmt.Errorf("%s, after %d times: %w", kind, t.Times, err)
			break
		}
		t.Times++
		f.say("%s %d: %s", kind, t.Times, t.last())
	}
	err = errors.Join(err, f.ready(ctx), pass(ctx, watched))
	t.Work = f.tally.take()
	drained, example := f.slurmctld.drained()
	if t.Drained = drained; drained > 0 {
		t.Examples = append(t.Examples, example)
	}
	_, _, now := f.epochs().now()
	t.Messages = now - late
	return t, err
}

func (f *faults) epochs() *epochs { return &f.floor.epochs }

// acting is the broker that acts, nil if there is none, and the other one.
func (f *faults) acting(ctx context.Context) (acts, other *host) {
	holder, err := f.kept.Acting(ctx)
	for i, h := range f.hosts {
		if err == nil && strings.Contains(holder, h.pid()) {
			return h, f.hosts[1-i]
		}
	}
	return nil, nil
}

func (f *faults) waits(ctx context.Context, h *host) bool {
	all, err := f.kept.Waiting(ctx)
	return err == nil && slices.ContainsFunc(all, func(text string) bool { return strings.Contains(text, h.pid()) })
}

// ready waits until one broker acts, the other waits, and all agents that are there have heard of the one that acts.
func (f *faults) ready(ctx context.Context) error {
	return f.until(ctx, follows, "one broker acts, the other waits, and agents know it", func() bool {
		acts, other := f.acting(ctx)
		return acts != nil && f.waits(ctx, other) && f.all()
	})
}

// all reports whether no agent still goes by an older broker.
func (f *faults) all() bool {
	newest, _, _ := f.epochs().now()
	return !slices.ContainsFunc(f.machines, func(m *machine) (old bool) {
		m.with(func() { old = m.link != nil && m.heard.Epoch != newest })
		return old
	})
}

// answered waits until a hook gets an answer at the broker's socket.
func (h *host) answered(ctx context.Context) error {
	return h.call(func(conn *grpc.ClientConn) error {
		for {
			one, cancel := context.WithTimeout(ctx, answerTime)
			_, err := api.NewCatalogServiceClient(conn).ListProfiles(one, &api.ListProfilesRequest{}, grpc.WaitForReady(true))
			cancel()
			if err == nil || ctx.Err() != nil {
				return err
			}
			_ = pass(ctx, look)
		}
	})
}

// followed measures, from the fault, until the other broker acts and answers a hook.
func (f *faults) followed(ctx context.Context, other *host, since time.Time, t *Faults) error {
	hooks := make(chan error, 1)
	go func() {
		err := other.answered(ctx)
		if err == nil {
			t.Hooks = append(t.Hooks, time.Since(since).Seconds())
		}
		hooks <- err
	}()
	if err := f.until(ctx, follows, "the other broker acts", func() bool {
		acts, _ := f.acting(ctx)
		return acts == other
	}); err != nil {
		return err
	}
	t.Acts = append(t.Acts, time.Since(since).Seconds())
	return <-hooks
}

// heard notes when the first agent heard of the new broker, and when all that are there had.
func (f *faults) heard(ctx context.Context, since time.Time, old uint64, t *Faults) <-chan error {
	done := make(chan error, 1)
	go func() {
		err := f.until(ctx, follows, "agents hear of it", func() bool {
			newest, _, _ := f.epochs().now()
			return newest > old && f.all()
		})
		if err == nil {
			_, first, _ := f.epochs().now()
			t.First, t.Agents = append(t.First, first.Sub(since).Seconds()), append(t.Agents, time.Since(since).Seconds())
		}
		done <- err
	}()
	return done
}

func (f *faults) killActing(ctx context.Context, t *Faults) error {
	acts, other := f.acting(ctx)
	old, _, _ := f.epochs().now()
	since := time.Now()
	acts.stop(os.Kill)
	heard := f.heard(ctx, since, old, t)
	err := f.followed(ctx, other, since, t)
	if err == nil {
		err = pass(ctx, restarts)
	}
	if err == nil {
		err = acts.start(f.fail)
	}
	if err == nil {
		err = <-heard
	}
	return err
}

// stopActing stops a broker that acts, as a hypervisor does with a whole host, but for its network.
func (f *faults) stopActing(ctx context.Context, t *Faults) error {
	return f.away(ctx, t, func(h *host) error { return h.cmd.Process.Signal(syscall.SIGSTOP) },
		func(h *host) error { return h.cmd.Process.Signal(syscall.SIGCONT) })
}

// cutActing cuts a broker off from all members of etcd.
func (f *faults) cutActing(ctx context.Context, t *Faults) error {
	each := func(do func(*wire)) func(*host) error {
		return func(h *host) error {
			for _, w := range h.wires {
				do(w)
			}
			return nil
		}
	}
	return f.away(ctx, t, each((*wire).cut), each((*wire).mend))
}

// away takes a broker away for a time, and counts the commands that it gives after another one has followed it.
func (f *faults) away(ctx context.Context, t *Faults, begin, end func(*host) error) error {
	acts, other := f.acting(ctx)
	old, _, _ := f.epochs().now()
	since := time.Now()
	err := begin(acts)
	heard := f.heard(ctx, since, old, t)
	if err == nil {
		err = f.followed(ctx, other, since, t)
	}
	acts.watch(true)
	if err == nil {
		err = pass(ctx, time.Until(since.Add(f.o.Stop)))
	}
	if err = errors.Join(err, end(acts)); err != nil {
		return err
	}
	if err := f.until(ctx, follows, "the old broker waits", func() bool { return f.waits(ctx, acts) }); err != nil {
		return err
	}
	err = errors.Join(<-heard, pass(ctx, watched))
	commands := acts.watch(false)
	if t.Commands += len(commands); len(commands) > 0 {
		t.Given = append(t.Given, fmt.Sprintf("fault at %s, commands: %s", since.Format("05.000"), strings.Join(commands[:min(len(commands), 8)], "; ")))
	}
	return err
}

// killMember kills a member of etcd, and starts it again.
func (f *faults) killMember(ctx context.Context, t *Faults, leads bool) error {
	leader := 0
	if err := f.until(ctx, follows, "etcd has a leader", func() (is bool) {
		var err error
		leader, err = f.etcd.leader(ctx)
		return err == nil
	}); err != nil {
		return err
	}
	victim := leader
	if !leads {
		victim = (leader + 1 + rand.IntN(2)) % 3
	}
	was, _ := f.acting(ctx)
	since := time.Now()
	f.etcd.kill(victim)
	if err := was.answered(ctx); err != nil {
		return err
	}
	t.Hooks = append(t.Hooks, time.Since(since).Seconds())
	if err := errors.Join(pass(ctx, memberAway), f.etcd.start(victim)); err != nil {
		return err
	}
	if now, _ := f.acting(ctx); now != was {
		t.Handed++
	}
	return f.until(ctx, limit, "etcd is whole again", func() bool { _, err := f.etcd.leader(ctx); return err == nil })
}
