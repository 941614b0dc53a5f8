// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"time"
)

// startFront starts the front-end's daemons: munged and slurmdbd, which slurmctld needs, then slurmctld and the broker,
// which wait for each other, and slurmrestd, which needs slurmctld.
func (l *Lab) startFront(ctx context.Context) error {
	if err := l.startMunged(ctx); err != nil {
		return err
	}
	if l.state.Options.Slurm.Accounting {
		if err := l.startAccounting(ctx); err != nil {
			return err
		}
	}
	var broker, slurmctld error
	var both sync.WaitGroup
	both.Go(func() { slurmctld = l.startSlurmctld(ctx) })
	if !l.state.Options.WithoutProduct {
		both.Go(func() { broker = l.startBroker(ctx) })
	}
	both.Wait()
	if err := errors.Join(broker, slurmctld); err != nil || !l.state.Options.Slurm.REST {
		return err
	}
	return l.Slurmrestd().Start(ctx)
}

// startBroker brings the broker up with its catalog.
func (l *Lab) startBroker(ctx context.Context) error {
	if l.state.Options.ExternalEtcd {
		if err := l.Etcd().Start(ctx); err != nil {
			return err
		}
	}
	if l.state.Options.TwoBrokers {
		if err := l.startMembers(ctx); err != nil {
			return err
		}
	}
	if err := l.Broker().Start(ctx); err != nil {
		return err
	}
	if l.state.Options.TwoBrokers {
		if err := l.Standby().Start(ctx); err != nil {
			return err
		}
	}
	// Meanwhile the agents start and wait for their tokens.
	if err := l.enrolNodes(ctx); err != nil {
		return err
	}
	return l.applyCatalog(ctx)
}

func (l *Lab) startMunged(ctx context.Context) error {
	// Forced, because a rootless lab's folders do not have the owner that munged expects.
	if _, err := l.must(ctx, service(l.state.Mode, "munge"), "/usr/sbin/munged", "--force"); err != nil {
		return fmt.Errorf("munged: %w", err)
	}
	return nil
}

func (l *Lab) startSlurmctld(ctx context.Context) error {
	// Started as SlurmUser: it would only drop root, which fails without a group mapping.
	if _, err := l.must(ctx, service(l.state.Mode, "slurm"), "/usr/sbin/slurmctld"); err != nil {
		return fmt.Errorf("slurmctld: %w (log %s)", err, l.layout.path("logs/slurm/slurmctld.log"))
	}
	return l.waitSlurmctld(ctx)
}

func (l *Lab) waitSlurmctld(ctx context.Context) error {
	err := Wait(ctx, time.Minute, "slurmctld's answer", func() (bool, error) {
		r, err := l.Exec(ctx, l.root(), "scontrol", "ping")
		return err == nil && r.Exit == 0 && strings.Contains(r.Stdout, "is UP"), err
	})
	if err != nil {
		return fmt.Errorf("%w (log %s):\n%s", err, l.layout.path("logs/slurm/slurmctld.log"),
			tail(l.layout.path("logs/slurm/slurmctld.log"), 5))
	}
	return nil
}

// RestartSlurmctld ends slurmctld by a signal (SIGTERM for an orderly restart,
// SIGKILL for a crash) and starts it again.
func (l *Lab) RestartSlurmctld(ctx context.Context, sig syscall.Signal) error {
	if err := l.StopSlurmctld(ctx, sig); err != nil {
		return err
	}
	return l.startSlurmctld(ctx)
}

// StopSlurmctld ends slurmctld and waits for its end. If slurmctld before 23.11 gets SIGTERM while one of its hooks
// runs, it can wait for that hook without end (ADR 0022); its state is saved by then, and one thread is left. At a site
// the unit's TimeoutStopSec kills it; here this function does.
func (l *Lab) StopSlurmctld(ctx context.Context, sig syscall.Signal) error {
	d := l.slurmctld()
	pid, err := d.signal(ctx, sig)
	if err != nil {
		return err
	}
	var alone time.Time // since when only one thread is left
	return d.gone(ctx, pid, func(threads int) error {
		switch {
		case threads != 1:
			alone = time.Time{}
		case alone.IsZero():
			alone = time.Now()
		case time.Since(alone) > lastThread:
			l.progress("slurmctld waits for a lost hook: killed")
			alone = time.Time{} // not long enough yet
			// It may have ended by itself meanwhile.
			_, err := l.Exec(ctx, l.root(), "kill", "-KILL", pid)
			return err
		}
		return nil
	})
}

// lastThread is longer than slurmctld's own last steps: it waits up to three seconds for its messages to nodes.
const lastThread = 5 * time.Second

// StartSlurmctld starts it after a StopSlurmctld.
func (l *Lab) StartSlurmctld(ctx context.Context) error { return l.startSlurmctld(ctx) }
