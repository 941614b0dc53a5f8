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

// startFront starts the front-end's daemons: munged and slurmdbd first, which
// slurmctld needs, then slurmctld and the broker, which wait for each other by
// themselves, and slurmrestd, which needs slurmctld.
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
	if err := l.Broker().Start(ctx); err != nil {
		return err
	}
	// The agents come up meanwhile and wait for their tokens.
	if err := l.enrolNodes(ctx); err != nil {
		return err
	}
	return l.applyCatalog(ctx)
}

func (l *Lab) startMunged(ctx context.Context) error {
	// Forced, because the single user of a rootless lab is not what munged
	// expects its folders to belong to.
	if _, err := l.must(ctx, service(l.state.Mode, "munge"), "/usr/sbin/munged", "--force"); err != nil {
		return fmt.Errorf("munged: %w", err)
	}
	return nil
}

func (l *Lab) startSlurmctld(ctx context.Context) error {
	// Started as SlurmUser: it would only drop root, and cannot where the
	// namespace has no group mapping.
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

// StopSlurmctld ends slurmctld and waits until it is gone. Slurm before 23.11,
// ended by SIGTERM while a hook of its runs, waits at times without end for word
// of that hook, though the helper that would send it has gone (ADR 0022): all is
// saved by then, and one thread is left. On a site the unit's TimeoutStopSec
// ends it, and here this does.
func (l *Lab) StopSlurmctld(ctx context.Context, sig syscall.Signal) error {
	d := l.slurmctld()
	pid, err := d.signal(ctx, sig)
	if err != nil {
		return err
	}
	var alone time.Time // since when it has had one thread
	return d.gone(ctx, pid, func(threads int) error {
		switch {
		case threads != 1:
			alone = time.Time{}
		case alone.IsZero():
			alone = time.Now()
		case time.Since(alone) > lastThread:
			l.progress("slurmctld waits for a hook that is gone: killed")
			alone = time.Time{} // it is seen for a moment yet
			// One that has just ended by itself is gone, too.
			_, err := l.Exec(ctx, l.root(), "kill", "-KILL", pid)
			return err
		}
		return nil
	})
}

// lastThread is longer than what slurmctld does last by itself: it waits for its
// messages to nodes for up to three seconds.
const lastThread = 5 * time.Second

// StartSlurmctld starts it after a StopSlurmctld.
func (l *Lab) StartSlurmctld(ctx context.Context) error { return l.startSlurmctld(ctx) }
