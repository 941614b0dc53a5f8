// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/kernelbroker/kernelbroker/kernel-broker/hook"
	"github.com/kernelbroker/kernelbroker/tests/emulated"
)

// profile is what jobs ask for.
const profile = "app"

// site is a broker with its nodes and its slurmctld.
type site struct {
	o         Options
	progress  io.Writer
	fail      context.CancelCauseFunc // ends all: a part does not work
	broker    *broker
	slurmctld *slurmctld
	dir       string
	commands  []net.Listener
	floor     *floor
	machines  []*machine
	lives     sync.WaitGroup // of the machines
	lastJob   uint32
	Figures
}

// newSite starts a broker, in a folder that begins empty, and makes its machines, which are off.
func newSite(ctx context.Context, o Options, nodes int, fail context.CancelCauseFunc, progress io.Writer) (s *site, err error) {
	s, err = emptySite(o, nodes, fail, progress)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.broker, err = s.newBroker("", s.slurmctld.run); err != nil {
		return nil, err
	}
	s.broker.data = s.broker.path("data")
	s.floor.broker = s.broker.address
	if err := errors.Join(s.broker.configure(nodes, s.slurmctld.user), s.broker.configureHooks(s.broker)); err != nil {
		return nil, err
	}
	s.say("keys and certificates")
	identities, err := enrol(ctx, s.broker.data, s.slurmctld.names)
	if err != nil {
		return nil, err
	}
	s.build(identities)
	if err := s.broker.start(fail); err != nil {
		return nil, err
	}
	return s, s.broker.call(func(conn *grpc.ClientConn) error { return register(ctx, conn, emulated.StockName, profile) })
}

// emptySite has slurmctld with its nodes, and no broker.
func emptySite(o Options, nodes int, fail context.CancelCauseFunc, progress io.Writer) (*site, error) {
	me, err := user.Current()
	if err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(filepath.Join(o.Dir, strconv.Itoa(nodes)))
	if err != nil {
		return nil, err
	}
	names := make([]string, nodes)
	for i := range names {
		names[i] = nodeName(i + 1)
	}
	s := &site{o: o, dir: dir, progress: progress, fail: fail, broker: &broker{}, Figures: Figures{nodes, map[string]float64{}},
		slurmctld: newSlurmctld(fmt.Sprintf("%s(%s)", me.Username, me.Uid), names)}
	s.slurmctld.reboot = func(nodes []string) { s.hook(nil, "reboot", strings.Join(nodes, ",")) }
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	s.floor = &floor{slurmctld: s.slurmctld, run: shared(dir)}
	return s, nil
}

// newBroker has a folder with Slurm's commands, which run answers, and an address.
func (s *site) newBroker(name string, run runner) (*broker, error) {
	b := &broker{program: s.o.Broker, dir: filepath.Join(s.dir, name)}
	commands, err := serveCommands(b.path("slurm"), s.o.Slurm, run)
	if err != nil {
		return nil, err
	}
	s.commands = append(s.commands, commands)
	b.address, err = freeAddress()
	return b, err
}

// build makes the machines.
func (s *site) build(identities []*identity) {
	for i, who := range identities {
		s.machines = append(s.machines, newMachine(s.floor, i+1, who))
	}
}

// call has a connection to the broker's socket.
func (b *broker) call(with func(*grpc.ClientConn) error) error {
	conn, err := grpc.NewClient("unix://"+b.path("broker.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: look, Multiplier: 1, MaxDelay: look}}))
	if err != nil {
		return err
	}
	return errors.Join(with(conn), conn.Close())
}

// shared is a folder in memory, as a node's /run is, or else below dir.
func shared(dir string) string {
	if memory, err := os.MkdirTemp("/dev/shm", "kb-bench-scale-"); err == nil {
		return memory
	}
	return filepath.Join(dir, "run")
}

func (s *site) say(format string, words ...any) {
	fmt.Fprintf(s.progress, "%d nodes: %s\n", s.Nodes, fmt.Sprintf(format, words...))
}

func (s *site) close() {
	s.broker.stop(os.Kill)
	s.fail(context.Canceled)
	s.lives.Wait()
	for _, l := range s.commands {
		l.Close()
	}
	os.RemoveAll(s.floor.run)
}

// until waits for a condition, and says for what in vain.
func (s *site) until(ctx context.Context, limit time.Duration, what string, is func() bool) error {
	for end := time.Now().Add(limit); !is(); time.Sleep(25 * time.Millisecond) {
		if ctx.Err() != nil {
			return fmt.Errorf("%s: %w", what, context.Cause(ctx))
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s: not within %v", what, limit)
		}
	}
	return nil
}

// sessions of all machines, and whether each has one that is not the old one; nil is none.
func (s *site) sessions(old []session) (now []session, others bool) {
	others = true
	for i, m := range s.machines {
		now = append(now, m.acknowledged())
		others = others && now[i] != (session{}) && (old == nil || now[i] != old[i])
	}
	return now, others
}

// connected waits until the broker has acknowledged each node's kernel, over another stream than the old one.
func (s *site) connected(ctx context.Context, old []session) error {
	return s.until(ctx, limit, "all agents connected and acknowledged", func() bool {
		_, all := s.sessions(old)
		return all
	})
}

// job that was given its nodes.
type job struct {
	id       uint32
	machines []*machine
	ready    bool
	// beyond is the time of its prolog, without what the machines' simulated steps took.
	beyond time.Duration
}

func (j *job) names() (all []string) {
	for _, m := range j.machines {
		all = append(all, m.name)
	}
	return all
}

// jobs allocates nodes from the first on to jobs of a size.
func (s *site) jobs(nodes, size int) (all []*job) {
	for machines := range slices.Chunk(s.machines[:nodes], size) {
		s.lastJob++
		j := &job{id: s.lastJob, machines: machines}
		s.slurmctld.allocate(j.id, j.names(), "kernel-broker: "+profile+" requested")
		all = append(all, j)
	}
	return all
}

// departures is how many boots the jobs' machines have left.
func departures(jobs []*job) (all int) {
	for _, j := range jobs {
		for _, m := range j.machines {
			boots, _ := m.history()
			all += boots
		}
	}
	return all
}

// ensure runs the prologs of jobs, all at once, and waits for their ends.
func (s *site) ensure(jobs []*job) error {
	var prologs sync.WaitGroup
	for _, j := range jobs {
		prologs.Go(func() { s.prolog(j) })
	}
	prologs.Wait()
	return nil
}

func (s *site) prolog(j *job) {
	before := make([]time.Duration, len(j.machines))
	for i, m := range j.machines {
		_, before[i] = m.history()
	}
	begun := time.Now()
	code := s.hook(j, "prolog-slurmctld")
	j.beyond = time.Since(begun)
	var own time.Duration
	for i, m := range j.machines {
		_, after := m.history()
		own = max(own, after-before[i])
	}
	j.beyond -= own
	// A hook that had the job requeued ends as well as one that has its kernel.
	j.ready = s.slurmctld.begin(j.id) && code == 0
}

// hook runs one of the product's as slurmctld does, but for the process.
func (s *site) hook(j *job, name string, words ...string) int {
	environ := map[string]string{}
	if j != nil {
		environ = map[string]string{"SLURM_JOB_ID": fmt.Sprint(j.id), "SLURM_JOB_NODELIST": hostlist(j.names()), "SPANK_KERNEL_PROFILE": profile}
	}
	return hook.Run(hook.Invocation{
		Args:   append([]string{name, "--config", s.broker.path("client.yaml")}, words...),
		Getenv: func(key string) string { return environ[key] }, Stdout: io.Discard, Stderr: io.Discard, Exit: func(int) {},
	})
}

// release ends jobs and waits until their nodes are in service again. A node that does not come back is told, and no error.
func (s *site) release(ctx context.Context, jobs []*job) error {
	var names []string
	for _, j := range jobs {
		names = append(names, j.names()...)
		s.slurmctld.end(j.id)
		go s.hook(j, "epilog-slurmctld")
	}
	if err := s.until(ctx, returns, "nodes of ended jobs are in service again", func() bool {
		_, all := s.sessions(nil)
		return all && s.slurmctld.idle(names)
	}); err != nil {
		s.say("%v", err)
	}
	return errors.Join(context.Cause(ctx), pass(ctx, settle))
}

func pass(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	return context.Cause(ctx)
}
