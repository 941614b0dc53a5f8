// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/kernelbroker/kernelbroker/tests/bench/figures"
)

// Options of a run.
type Options struct {
	// Nodes of each measurement, growing.
	Nodes []int
	// Broker and Slurm are the programs: the broker, and what stands for Slurm's commands.
	Broker, Slurm string
	// Dir is the folder of the run, and Profiles that of the broker's profiles; empty: none.
	Dir, Profiles string
}

const (
	// bootTime is longer than slurmctld, which counts in whole seconds, makes a boot wait.
	bootTime = 3 * time.Second
	idleTime = 30 * time.Second
	// settle is how long a phase waits for the quiet after the one before.
	settle = 5 * time.Second
	// restarts is RestartSec= of the broker's unit.
	restarts = 2 * time.Second
	// limit ends what does not end, and returns the wait for nodes.
	limit, returns = 20 * time.Minute, 5 * time.Minute

	jobNodes  = 10
	waveNodes = 25 // of one job of a wave
	mostNodes = 60_000
)

// Run measures at each number of nodes. With an error it returns what was measured until then.
func Run(ctx context.Context, o Options, progress io.Writer) (result *Result, err error) {
	if len(o.Nodes) == 0 || !slices.IsSorted(o.Nodes) || o.Nodes[0] < 4*waveNodes || slices.Max(o.Nodes) > mostNodes {
		return nil, fmt.Errorf("--nodes: from %d to %d, growing", 4*waveNodes, mostNodes)
	}
	if o.Slurm, err = filepath.Abs(o.Slurm); err == nil && o.Profiles != "" {
		err = os.MkdirAll(o.Profiles, 0o755)
	}
	if err = errors.Join(err, moreFiles(slices.Max(o.Nodes))); err != nil {
		return nil, err
	}
	result = &Result{Begun: time.Now(), Load: load()}
	for _, nodes := range o.Nodes {
		var one Figures
		if one, err = measure(ctx, o, nodes, progress); len(one.Values) > 0 {
			result.Runs, result.Load = append(result.Runs, one), max(result.Load, load())
		}
		if err != nil {
			err = fmt.Errorf("%d nodes: %w", nodes, err)
			break
		}
	}
	result.Goals = goals(result.Runs)
	return result, err
}

// load is how many programs have wanted a processor in the last minute.
func load() (average float64) {
	text, err := os.ReadFile("/proc/loadavg")
	if err == nil {
		_, _ = fmt.Sscan(string(text), &average) // zero says that it is not known
	}
	return average
}

// moreFiles lets this process and the broker, which begins with its limit, have a file for each connection. The broker keeps
// some for strangers and for itself.
func moreFiles(nodes int) error {
	need := uint64(connections(nodes) + 4096 + 1024)
	var now syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &now); err != nil {
		return err
	}
	// Also where it is enough: what is set here is the broker's, too.
	now.Cur, now.Max = max(now.Cur, need), max(now.Max, need)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &now); err != nil {
		return fmt.Errorf("%d nodes take %d open files: %w (ulimit -Hn)", nodes, need, err)
	}
	return nil
}

func measure(ctx context.Context, o Options, nodes int, progress io.Writer) (Figures, error) {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	s, err := newSite(ctx, o, nodes, fail, progress)
	if err != nil {
		return Figures{}, err
	}
	defer s.close()
	for _, phase := range []struct {
		name     string
		run      func(context.Context) error
		profiled bool // the broker lives through it
	}{{"connect", s.connect, true}, {"idle", s.idle, true}, {"job", s.job, true}, {"wave", s.wave, true}, {"kill", s.kill, false}, {"restart", s.restart, false}} {
		begun, end := time.Now(), func() error { return nil }
		if o.Profiles != "" && phase.profiled {
			if end, err = s.broker.profile(filepath.Join(o.Profiles, fmt.Sprintf("%d-%s", nodes, phase.name))); err != nil {
				return s.Figures, err
			}
		}
		if err := errors.Join(phase.run(ctx), end()); err != nil {
			return s.Figures, fmt.Errorf("%s: %w", phase.name, err)
		}
		s.say("%s, %.0f s", phase.name, time.Since(begun).Seconds())
	}
	for command := range s.slurmctld.unknown {
		s.say("the simulated slurmctld does not know %q", command)
	}
	return s.Figures, nil
}

// costs runs something and returns what the broker's processor time grew by.
func (s *site) costs(run func() error) (float64, error) {
	before, err := s.broker.processor()
	if err == nil {
		err = run()
	}
	if err != nil {
		return 0, err
	}
	after, err := s.broker.processor()
	return after - before, err
}

// connect has all agents connect at once.
func (s *site) connect(ctx context.Context) error {
	begun := time.Now()
	cpu, err := s.costs(func() error {
		s.switchOn(ctx)
		return s.connected(ctx, nil)
	})
	s.Values["connect_dials"] = float64(s.floor.dials.Load())
	if err != nil {
		return err // how long it would have taken is not known
	}
	s.Values["connect_cpu"], s.Values["connect_time"] = cpu, time.Since(begun).Seconds()
	return pass(ctx, settle)
}

// switchOn has all machines boot.
func (s *site) switchOn(ctx context.Context) {
	for _, m := range s.machines {
		s.lives.Go(func() {
			if err := m.life(ctx); err != nil {
				s.fail(fmt.Errorf("%s: %w", m.name, err))
			}
		})
	}
}

func (s *site) idle(ctx context.Context) error {
	cpu, err := s.costs(func() error { return pass(ctx, idleTime) })
	if err == nil {
		s.Values["idle_cpu"] = 100 * cpu / idleTime.Seconds()
		s.Values["idle_memory"], err = s.broker.memory()
	}
	return err
}

// job is one of ten nodes.
func (s *site) job(ctx context.Context) error {
	_, err := s.switches(ctx, "job", s.jobs(jobNodes, jobNodes))
	return err
}

// wave has a quarter of the nodes switch at once.
func (s *site) wave(ctx context.Context) error {
	cpu, err := s.switches(ctx, "wave", s.jobs(s.Nodes/4, waveNodes))
	s.Values["wave_cpu"] = 1000 * cpu / float64(s.Nodes/4)
	return err
}

// switches measures jobs whose prologs begin at once, and ends them.
func (s *site) switches(ctx context.Context, name string, jobs []*job) (cpu float64, err error) {
	cpu, err = s.costs(func() error { return s.ensure(jobs) })
	beyond := ready(jobs)
	s.Values[name+"_cpu"], s.Values[name+"_jobs"], s.Values[name+"_ready"] = cpu, float64(len(jobs)), float64(len(beyond))
	if len(beyond) > 0 {
		s.Values[name+"_beyond"] = figures.Of(beyond).Median
	}
	return cpu, errors.Join(err, s.release(ctx, jobs))
}

// kill ends the broker in the middle of another wave, and its unit starts it again.
func (s *site) kill(ctx context.Context) error {
	s.slurmctld.drained() // those before are no matter of the kill
	jobs := s.jobs(s.Nodes/4, waveNodes)
	before, ended := departures(jobs), make(chan struct{})
	go func() {
		_ = s.ensure(jobs)
		close(ended)
	}()
	over := func() bool {
		select {
		case <-ended:
			return true
		default:
			return false
		}
	}
	if err := s.until(ctx, limit, "half of the nodes boot", func() bool { return over() || 2*(departures(jobs)-before) >= s.Nodes/4 }); err != nil {
		return err
	}
	s.broker.stop(os.Kill)
	if err := errors.Join(pass(ctx, restarts), s.broker.start(s.fail), s.until(ctx, limit, "all prologs end", over)); err != nil {
		return err
	}
	s.Values["kill_jobs"], s.Values["kill_ready"] = float64(len(jobs)), float64(len(ready(jobs)))
	err := s.release(ctx, jobs)
	drained, example := s.slurmctld.drained() // all nodes did well
	if s.Values["kill_drained"] = float64(drained); drained > 0 {
		s.say("%d nodes drained or set down, for example %s", drained, example)
	}
	return err
}

// ready are the times of the jobs that got their kernel.
func ready(jobs []*job) (beyond []float64) {
	for _, j := range jobs {
		if j.ready {
			beyond = append(beyond, j.beyond.Seconds())
		}
	}
	return beyond
}

// restart is systemctl restart.
func (s *site) restart(ctx context.Context) error {
	old, _ := s.sessions(nil)
	begun := time.Now()
	s.broker.stop(syscall.SIGTERM)
	err := s.broker.start(s.fail)
	if err == nil {
		err = s.connected(ctx, old)
	}
	s.Values["restart_time"] = time.Since(begun).Seconds()
	return err
}
