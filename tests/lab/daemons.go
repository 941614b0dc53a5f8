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

// startFront starts the front-end's daemons: munged first, which slurmctld
// needs, then slurmctld and the broker, which wait for each other by
// themselves.
func (l *Lab) startFront(ctx context.Context) error {
	if err := l.startMunged(ctx); err != nil {
		return err
	}
	var broker, slurmctld error
	var both sync.WaitGroup
	both.Go(func() { slurmctld = l.startSlurmctld(ctx) })
	if !l.state.Options.WithoutProduct {
		both.Go(func() {
			if broker = l.Broker().Start(ctx); broker == nil {
				broker = l.applyCatalog(ctx)
			}
		})
	}
	both.Wait()
	return errors.Join(broker, slurmctld)
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
	err := Wait(ctx, 20*time.Second, "slurmctld's answer", func() (bool, error) {
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

// StopSlurmctld ends slurmctld and waits until it is gone.
func (l *Lab) StopSlurmctld(ctx context.Context, sig syscall.Signal) error {
	return l.stopDaemon(ctx, "slurmctld", slurmctldPidFile, sig)
}

// StartSlurmctld starts it after a StopSlurmctld.
func (l *Lab) StartSlurmctld(ctx context.Context) error { return l.startSlurmctld(ctx) }

// stopDaemon signals a front-end daemon by its pid file and waits for its end.
func (l *Lab) stopDaemon(ctx context.Context, name, pidFile string, sig syscall.Signal) error {
	script := `read -r pid <"$1" && kill -"$2" "$pid" && echo "$pid"`
	pid, err := l.must(ctx, l.root(), "/bin/sh", "-c", script, "sh", pidFile, fmt.Sprint(int(sig)))
	if err != nil {
		return fmt.Errorf("daemon %q: %w", name, err)
	}
	return waitFor(ctx, time.Minute, 20*time.Millisecond, "the end of "+name, func() (bool, error) {
		r, err := l.Exec(ctx, l.root(), "test", "-e", "/proc/"+strings.TrimSpace(pid))
		return r.Exit != 0, err
	})
}

// Broker is the broker daemon on the front-end.
type Broker struct{ lab *Lab }

// Broker returns the handle; it is there while the broker is not.
func (l *Lab) Broker() Broker { return Broker{l} }

// Start starts the broker and waits for its socket.
func (b Broker) Start(ctx context.Context) error {
	l := b.lab
	// The shell notes its pid and becomes the broker. setsid, so that it does
	// not belong to the command that started it.
	script := `rm -f "$2"; echo $$ >"$1"; exec /usr/local/bin/kernel-broker --config /etc/kernel-broker/broker.yaml \
	>>/var/log/kernel-broker/broker.log 2>&1 </dev/null`
	launch := `setsid /bin/sh -c "$0" sh "$1" "$2" >/dev/null 2>&1 </dev/null &`
	if _, err := l.must(ctx, service(l.state.Mode, "slurm"), "/bin/sh", "-c", launch, script, brokerPidFile, brokerSocket); err != nil {
		return fmt.Errorf("broker: %w", err)
	}
	log := l.layout.path("logs/kernel-broker/broker.log")
	err := waitFor(ctx, 30*time.Second, 50*time.Millisecond, "the broker's socket", func() (bool, error) {
		check := `test -S "$1" && exit 0; read -r pid <"$2" && test ! -e "/proc/$pid" && exit 2; exit 1`
		r, err := l.Exec(ctx, l.root(), "/bin/sh", "-c", check, "sh", brokerSocket, brokerPidFile)
		if err == nil && r.Exit == 2 {
			err = fmt.Errorf("it ended")
		}
		return r.Exit == 0, err
	})
	if err != nil {
		return fmt.Errorf("broker: %w (log %s):\n%s", err, log, tail(log, 8))
	}
	return nil
}

// Kill9 ends the broker as a crash does.
func (b Broker) Kill9(ctx context.Context) error {
	return b.lab.stopDaemon(ctx, "broker", brokerPidFile, syscall.SIGKILL)
}

// Stop ends the broker in order.
func (b Broker) Stop(ctx context.Context) error {
	return b.lab.stopDaemon(ctx, "broker", brokerPidFile, syscall.SIGTERM)
}

// Signal sends any signal, as SIGSTOP for a broker that hangs.
func (b Broker) Signal(ctx context.Context, sig syscall.Signal) error {
	script := `read -r pid <"$1" && kill -"$2" "$pid"`
	if _, err := b.lab.must(ctx, b.lab.root(), "/bin/sh", "-c", script, "sh", brokerPidFile, fmt.Sprint(int(sig))); err != nil {
		return fmt.Errorf("broker: %w", err)
	}
	return nil
}
