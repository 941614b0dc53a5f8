// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Daemon is a process on the front-end that tests stop, kill and start.
type Daemon struct {
	lab     *Lab
	name    string
	user    string
	argv    []string
	pidFile string
	log     string // below /var/log
	// ready is a command that succeeds once the daemon serves.
	ready []string
}

// Broker returns the handle of the broker; it is there while the broker is not.
func (l *Lab) Broker() Daemon {
	return Daemon{
		lab: l, name: "broker", user: l.root(),
		argv:    confined(brokerUser(l.state.Options, l.state.Mode), l.state.Mode, "/usr/local/bin/kernel-broker", "--config", "/etc/kernel-broker/broker.yaml"),
		pidFile: "/run/kernel-broker/broker.pid", log: "kernel-broker/broker.log",
		// Not the socket's presence, which may be left over, and not "health", which also asks slurmctld and the agents.
		ready: []string{"kernelctl", "profile", "list"},
	}
}

// Etcd returns the handle of the etcd outside of the broker, which a lab has
// with Options.ExternalEtcd.
func (l *Lab) Etcd() Daemon {
	return Daemon{
		lab: l, name: "etcd", user: brokerUser(l.state.Options, l.state.Mode),
		argv: []string{
			"/usr/bin/etcd", "--name", "lab", "--data-dir", "/var/lib/kernel-broker/external-etcd",
			"--listen-client-urls", etcdEndpoint, "--advertise-client-urls", etcdEndpoint,
			"--listen-peer-urls", "http://127.0.0.1:2380", "--log-level", "warn",
		},
		pidFile: "/run/kernel-broker/etcd.pid", log: "kernel-broker/etcd.log",
		ready: []string{busybox, "wget", "-q", "-O", "-", etcdEndpoint + "/health"},
	}
}

// confined is a command under the restrictions of the broker's unit that need no systemd: its user and that user's group
// only, no capability, and its umask.
func confined(user string, m Mode, argv ...string) []string {
	drop := []string{"setpriv", "--no-new-privs", "--inh-caps=-all"}
	if m != ModeSingle { // no other user, and nothing to drop
		drop = append(drop, "--reset-env", "--bounding-set=-all", "--reuid", user, "--regid", user, "--clear-groups")
	}
	return append(append(drop, "/bin/sh", "-c", `umask 0027; exec "$@"`, "sh"), argv...)
}

const etcdEndpoint = "http://127.0.0.1:2379"

// slurmctld makes itself a daemon, so only its end is a Daemon's.
func (l *Lab) slurmctld() Daemon {
	return Daemon{lab: l, name: "slurmctld", pidFile: slurmctldPidFile}
}

// Start starts the daemon and waits until it serves.
func (d Daemon) Start(ctx context.Context) error {
	// The shell writes its pid and becomes the daemon, in its own session, so that it outlives the command that started
	// it.
	become := `echo $$ >"$0"; log=$1; shift; exec "$@" >>"$log" 2>&1 </dev/null`
	launch := `rm -f "$2"; setsid /bin/sh -c "$@" >/dev/null 2>&1 </dev/null &`
	argv := append([]string{"/bin/sh", "-c", launch, "sh", become, d.pidFile, "/var/log/" + d.log}, d.argv...)
	if _, err := d.lab.must(ctx, d.user, argv...); err != nil {
		return fmt.Errorf("daemon %q: %w", d.name, err)
	}
	log := d.lab.FrontLog(d.log)
	err := waitFor(ctx, 3*time.Minute, 50*time.Millisecond, "its answer", func() (bool, error) {
		r, err := d.lab.Exec(ctx, d.lab.root(), d.ready...)
		if err != nil || r.Exit == 0 {
			return err == nil, err
		}
		running, err := d.Running(ctx)
		if err == nil && !running {
			err = errors.New("it ended")
		}
		return false, err
	})
	if err != nil {
		return fmt.Errorf("daemon %q: %w (log %s):\n%s", d.name, err, log, tail(log, 8))
	}
	return nil
}

// Running reports whether the process in the pid file exists.
func (d Daemon) Running(ctx context.Context) (bool, error) {
	// The launched shell may not have written the file yet.
	script := `i=0; until read -r pid <"$0"; do i=$((i+1)); [ $i -lt 100 ] || exit 1; sleep 0.02; done 2>/dev/null
test -e "/proc/$pid"`
	r, err := d.lab.Exec(ctx, d.lab.root(), "/bin/sh", "-c", script, d.pidFile)
	return err == nil && r.Exit == 0, err
}

// Kill9 ends the daemon like a crash and waits for its end.
func (d Daemon) Kill9(ctx context.Context) error { return d.end(ctx, syscall.SIGKILL) }

// Stop ends the daemon orderly and waits for its end.
func (d Daemon) Stop(ctx context.Context) error { return d.end(ctx, syscall.SIGTERM) }

// Signal sends any signal, such as SIGSTOP to simulate a hang.
func (d Daemon) Signal(ctx context.Context, sig syscall.Signal) error {
	_, err := d.signal(ctx, sig)
	return err
}

// PID returns the daemon's process as the front-end knows it.
func (d Daemon) PID(ctx context.Context) (string, error) {
	out, err := d.lab.must(ctx, d.lab.root(), "cat", d.pidFile)
	return strings.TrimSpace(out), err
}

// signal returns the pid that received the signal.
func (d Daemon) signal(ctx context.Context, sig syscall.Signal) (string, error) {
	script := `read -r pid <"$0" && kill -"$1" "$pid" && echo "$pid"`
	out, err := d.lab.must(ctx, d.lab.root(), "/bin/sh", "-c", script, d.pidFile, strconv.Itoa(int(sig)))
	if err != nil {
		return "", fmt.Errorf("daemon %q: %w", d.name, err)
	}
	return strings.TrimSpace(out), nil
}

func (d Daemon) end(ctx context.Context, sig syscall.Signal) error {
	pid, err := d.signal(ctx, sig)
	if err != nil {
		return err
	}
	return d.gone(ctx, pid, func(int) error { return nil })
}

// gone waits for the end of a process and passes on its number of threads meanwhile.
func (d Daemon) gone(ctx context.Context, pid string, look func(threads int) error) error {
	return waitFor(ctx, time.Minute, 20*time.Millisecond, "the end of "+d.name, func() (bool, error) {
		r, err := d.lab.Exec(ctx, d.lab.root(), "/bin/sh", "-c", `set -- "/proc/$0/task"/*; test -e "$1" && echo $#`, pid)
		if err != nil || r.Exit != 0 {
			return err == nil, err
		}
		threads, err := strconv.Atoi(strings.TrimSpace(r.Stdout))
		if err == nil {
			err = look(threads)
		}
		return false, err
	})
}
