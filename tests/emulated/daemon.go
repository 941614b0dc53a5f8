// SPDX-License-Identifier: Apache-2.0

package emulated

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kernelbroker/kernelbroker/tests/lab"
)

const slurmctldPidFile = "/run/slurm/slurmctld.pid"

// Daemon is a process on the front-end that tests stop, kill and start.
type Daemon struct {
	cluster *Cluster
	name    string
	user    string
	argv    []string
	pidFile string
	log     string
	// forks: the daemon detaches itself and writes its pid file.
	forks bool
	// ready is a command that succeeds once the daemon serves.
	ready []string
}

// Broker is the broker's handle; it is there while the broker is not.
func (c *Cluster) Broker() Daemon {
	return Daemon{
		cluster: c, name: "broker", user: "slurm", pidFile: "/run/kernel-broker/broker.pid",
		argv: []string{"/opt/kernel-broker/bin/kernel-broker", "--config", "/etc/kernel-broker/broker.yaml"},
		log:  "/var/log/kernel-broker/broker.log",
		// Not the socket's presence, which may be left over.
		ready: []string{"kernelctl", "profile", "list"},
	}
}

// Standby is the handle of the second broker, which serves when the first has ended.
func (c *Cluster) Standby() Daemon {
	const log = "/var/log/kernel-broker/standby.log"
	return Daemon{
		cluster: c, name: "standby", user: "slurm", pidFile: "/run/kernel-broker/standby.pid",
		argv: []string{"/opt/kernel-broker/bin/kernel-broker", "--config", "/etc/kernel-broker/standby.yaml"},
		log:  log, ready: []string{"grep", "-q", "another broker acts", log},
	}
}

// members is how many etcd has.
const members = 3

// Etcd is the handle of one of etcd's members, from 0.
func (c *Cluster) Etcd(member int) Daemon {
	var all []string
	for i := range members {
		all = append(all, fmt.Sprintf("m%d=http://%s:%d", i, frontAddress, etcdPort(i)+1))
	}
	name, peer := fmt.Sprintf("etcd%d", member), fmt.Sprintf("http://%s:%d", frontAddress, etcdPort(member)+1)
	log := "/var/log/kernel-broker/" + name + ".log"
	return Daemon{
		cluster: c, name: name, user: "slurm", pidFile: "/run/kernel-broker/" + name + ".pid",
		argv: []string{"/usr/bin/etcd", fmt.Sprintf("--name=m%d", member), "--data-dir=/var/lib/kernel-broker/brokers-" + name,
			fmt.Sprintf("--listen-client-urls=http://0.0.0.0:%d", etcdPort(member)), fmt.Sprintf("--advertise-client-urls=http://%s:%d", frontAddress, etcdPort(member)),
			"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=" + strings.Join(all, ",")},
		log:   log,
		ready: []string{"/bin/sh", "-c", "grep -q 'ready to serve client requests' " + log},
	}
}

// startEtcd starts all members, which wait for each other.
func (c *Cluster) startEtcd(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for i := range members {
		group.Go(func() error { return c.Etcd(i).Start(ctx) })
	}
	return group.Wait()
}

// CutOff takes from one of the two brokers the address by which it reaches etcd, and Connect gives it back. What is under way
// gets no answer meanwhile.
func (c *Cluster) CutOff(ctx context.Context, broker int) error { return c.address(ctx, "del", broker) }

// Connect ends CutOff.
func (c *Cluster) Connect(ctx context.Context, broker int) error {
	return c.address(ctx, "add", broker)
}

func (c *Cluster) address(ctx context.Context, verb string, broker int) error {
	args := []string{"--target", strconv.Itoa(c.holder), "--net"}
	if c.mode == lab.ModeSubuid {
		args = append(args, "--user", "--setuid", "0", "--setgid", "0")
	}
	args = append(args, "--", "ip", "addr", verb, etcdAddress(broker)+"/32", "dev", "lo")
	if out, err := exec.CommandContext(ctx, "nsenter", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip addr %s: %w: %s", verb, err, out)
	}
	return nil
}

// Slurmctld is slurmctld's handle.
func (c *Cluster) Slurmctld() Daemon {
	return Daemon{
		cluster: c, name: "slurmctld", user: "slurm", pidFile: slurmctldPidFile, forks: true,
		argv: []string{"/usr/sbin/slurmctld"}, log: "/var/log/slurm/slurmctld.log",
		ready: []string{"/bin/sh", "-c", "scontrol ping | grep -q 'is UP'"},
	}
}

func (c *Cluster) munged() Daemon {
	return Daemon{
		cluster: c, name: "munged", user: "munge", pidFile: "/run/munge/munged.pid", forks: true,
		argv: []string{"/usr/sbin/munged", "--force"}, log: "/var/log/munge/munged.log",
		ready: []string{"munge", "-n", "-o", "/dev/null"},
	}
}

// startAccounting starts slurmdbd with its database, and makes the cluster known to it.
func (c *Cluster) startAccounting(ctx context.Context) error {
	for _, d := range []Daemon{
		{
			cluster: c, name: "mariadbd", user: "mysql", pidFile: "/run/mysqld/cluster.pid",
			argv: lab.DatabaseCommand("slurm"), log: "/var/log/mysql/mariadbd.log",
			ready: []string{"test", "-S", lab.DatabaseSocket},
		},
		{
			cluster: c, name: "slurmdbd", user: "slurm", pidFile: "/run/slurm/slurmdbd.daemon.pid",
			argv: lab.SlurmdbdCommand(), log: "/var/log/slurm/slurmdbd.log",
			ready: []string{"sacctmgr", "--noheader", "list", "cluster"},
		},
	} {
		if err := d.Start(ctx); err != nil {
			return err
		}
	}
	return c.must(ctx, "root", "sacctmgr", "--immediate", "add", "cluster", clusterName)
}

// Log is the daemon's log as the host sees it.
func (d Daemon) Log() string { return d.cluster.path(d.log) }

// Start starts the daemon and waits until it serves.
func (d Daemon) Start(ctx context.Context) error {
	launch := []string{"/bin/sh", "-c", `exec "$@" >>"$0" 2>&1 </dev/null`, d.log + ".start"}
	if !d.forks {
		// The shell notes its pid and becomes the daemon, in a session of its own.
		become := `echo $$ >"$0"; log=$1; shift; exec "$@" >>"$log" 2>&1 </dev/null`
		launch = []string{"/bin/sh", "-c", `rm -f "$2"; setsid /bin/sh -c "$@" >/dev/null 2>&1 </dev/null &`, "sh", become, d.pidFile, d.log}
	}
	if err := d.cluster.must(ctx, d.user, append(launch, d.argv...)...); err != nil {
		return fmt.Errorf("daemon %q: %w", d.name, err)
	}
	err := d.cluster.wait(ctx, 2*time.Minute, "the answer of "+d.name, func() (bool, error) {
		r, err := d.cluster.Exec(ctx, "root", d.ready...)
		if err != nil || r.Exit == 0 {
			return err == nil, err
		}
		if !d.forks && !d.Running() {
			return false, errors.New("it ended")
		}
		return false, nil
	})
	if err != nil {
		return fmt.Errorf("daemon %q: %w:\n%s", d.name, err, tail(d.Log(), 8))
	}
	return nil
}

// Running reports whether the process in the pid file exists.
func (d Daemon) Running() bool {
	for range 100 {
		// The launched shell may not have written the file yet.
		if pid, err := d.PID(); err == nil {
			return d.cluster.alive(pid)
		}
		time.Sleep(20 * time.Millisecond)
	}
	return false
}

// PID of the process, in the cluster.
func (d Daemon) PID() (int, error) {
	text, err := os.ReadFile(d.cluster.path(d.pidFile))
	if err != nil {
		return 0, fmt.Errorf("daemon %q: %w", d.name, err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("daemon %q: pid file: %w", d.name, err)
	}
	return pid, nil
}

// Signal sends any signal, such as SIGSTOP to simulate a hang.
func (d Daemon) Signal(ctx context.Context, sig syscall.Signal) error {
	pid, err := d.PID()
	if err != nil {
		return err
	}
	return d.cluster.must(ctx, "root", "kill", "-"+strconv.Itoa(int(sig)), strconv.Itoa(pid))
}

// Kill ends the daemon like a crash and waits for its end.
func (d Daemon) Kill(ctx context.Context) error { return d.end(ctx, syscall.SIGKILL) }

// Stop ends the daemon orderly and waits for its end.
func (d Daemon) Stop(ctx context.Context) error { return d.end(ctx, syscall.SIGTERM) }

// Restart ends the daemon by a signal and starts it again.
func (d Daemon) Restart(ctx context.Context, sig syscall.Signal) error {
	if err := d.end(ctx, sig); err != nil {
		return err
	}
	return d.Start(ctx)
}

// lastThread is longer than slurmctld's own last steps: it waits up to three seconds for its messages to nodes.
const lastThread = 5 * time.Second

// end waits for the process's end. If slurmctld before 23.11 gets SIGTERM while one of its hooks runs, it can wait for
// that hook without end (ADR 0022); its state is saved by then, and one thread is left. At a site the unit's
// TimeoutStopSec kills it; here this function does.
func (d Daemon) end(ctx context.Context, sig syscall.Signal) error {
	pid, err := d.PID()
	if err != nil {
		return err
	}
	if err := d.Signal(ctx, sig); err != nil {
		return err
	}
	var alone time.Time // since when only one thread is left
	return d.cluster.wait(ctx, 2*time.Minute, "the end of "+d.name, func() (bool, error) {
		threads := d.cluster.threads(pid)
		switch {
		case threads == 0:
			return true, nil
		case threads > 1:
			alone = time.Time{}
		case alone.IsZero():
			alone = time.Now()
		case time.Since(alone) > lastThread:
			return false, d.Signal(ctx, syscall.SIGKILL)
		}
		return false, nil
	})
}

// threads of a process of the front-end, 0 if it has ended.
func (c *Cluster) threads(pid int) int {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/root/proc/%d/task", c.holder, pid))
	if err != nil {
		return 0
	}
	return len(entries)
}

func (c *Cluster) alive(pid int) bool { return c.threads(pid) > 0 }

// tail returns a file's last lines, for error messages.
func tail(path string, lines int) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// Processes are the cluster's processes of the program with this path, with the front-end's pids.
func (c *Cluster) Processes(program string) ([]string, error) {
	proc := fmt.Sprintf("/proc/%d/root/proc", c.holder)
	entries, err := os.ReadDir(proc)
	if err != nil {
		return nil, fmt.Errorf("processes: %w", err)
	}
	var pids []string
	for _, e := range entries {
		line, err := os.ReadFile(proc + "/" + e.Name() + "/cmdline")
		if argv0, _, _ := strings.Cut(string(line), "\x00"); err == nil && argv0 == program {
			pids = append(pids, e.Name())
		}
	}
	return pids, nil
}
