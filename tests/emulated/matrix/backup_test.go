// SPDX-License-Identifier: Apache-2.0

//go:build emulated

package matrix

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/kernelbroker/kernelbroker/tests/emulated"
)

// A backup controller is a second slurmctld, here under the host name back and
// at n3's address; the state is on a disk that both have.
func startBackup(c cluster) {
	c.T.Helper()
	hosts := c.Path("etc/hosts")
	text, err := os.ReadFile(hosts)
	c.OK(err)
	c.OK(os.WriteFile(hosts, append(text, "10.99.1.3 back\n"...), 0o644))
	c.Must("root", "unshare", "--uts", "--mount", "--propagation", "private", "/bin/sh", "-c",
		`hostname back && mount -t tmpfs -o mode=777 tmpfs /run/slurm && `+
			`setpriv --reuid slurm --regid slurm --init-groups /usr/sbin/slurmctld -L /var/log/slurm/backup.log `+
			`</dev/null >/var/log/slurm/backup.start 2>&1`)
	c.Wait(limit, "the backup", func() bool { return c.serves("back") })
}

// serves reports whether the controller of that host answers.
func (c cluster) serves(host string) bool {
	for line := range strings.Lines(c.Try("root", "scontrol", "ping").Stdout) {
		if strings.Contains(line, "at "+host+" is UP") {
			return true
		}
	}
	return false
}

// bothGoOn has the job in its switch and the one that runs end, each on its kernel.
func (c cluster) bothGoOn(id, running string, goOn func()) {
	c.T.Helper()
	goOn()
	c.completed(id)
	c.ran("alice", id, "mitgcm", 1)
	c.LetGo("alice", running)
	c.completed(running)
	c.ran("alice", running, "mitgcm", 1)
	c.home()
}

// nextJob runs a job on two nodes.
func (c cluster) nextJob() {
	c.T.Helper()
	last := c.Sbatch("alice", "0", "-N2", profile)
	c.completed(last)
	c.ran("alice", last, "mitgcm", 2)
	c.home()
}

// stateSaved is longer than slurmctld leaves a change unsaved.
const stateSaved = 7 * time.Second

// The backup takes over while nodes switch, and while a job runs.
func TestBackupController(t *testing.T) {
	t.Parallel()
	c := cluster{emulated.Start(t, func(o *emulated.Options) {
		// slurmctld counts boots in whole seconds, and a registration in the next second is a crash to a controller that
		// knows the node from its boot alone; this setting accepts it.
		o.ReturnToService = 2
		o.Set = map[string]string{
			"SlurmctldTimeout": "10",
			// Both controllers are on one host.
			"CommunicationParameters": "NoCtldInAddrAny",
		}
		o.Lines = []string{"SlurmctldHost=back(10.99.1.3)"}
	})}
	startBackup(c)
	running := c.held("alice", 1, "--nodelist=n2", profile)
	// The backup knows the saved state of up to five seconds ago: a boot since then is a crash to it, with the product
	// and without.
	time.Sleep(stateSaved)
	id, goOn := c.inSwitch("n1")
	c.Must("root", "scontrol", "takeover")
	c.Wait(limit, "the backup's takeover", func() bool {
		return !c.serves("front") && c.Try("root", "squeue").Exit == 0
	}, func() string { return c.Try("root", "scontrol", "ping").Stdout })
	c.bothGoOn(id, running, goOn)
	c.plain("n1")
	c.plain("n2")
	c.nextJob()
}

// The broker dies while a node switches and while a job runs. The one that waited on the host of a backup controller
// acts, agents and hooks find it there, and the hooks prove by MUNGE who they are.
func TestSecondBroker(t *testing.T) {
	t.Parallel()
	c := cluster{emulated.Start(t, func(o *emulated.Options) { o.TwoBrokers = true })}
	running := c.held("alice", 1, "--nodelist=n2", profile)
	id, goOn := c.inSwitch("n1")
	c.OK(c.Broker().Kill(c.Ctx))
	c.Wait(limit, "the second broker to act", func() bool { return c.Try("root", "kernelctl", "health").Exit == 0 },
		func() string { return c.Try("root", "kernelctl", "health").Stderr })
	c.bothGoOn(id, running, goOn)
	c.nextJob()
	text, err := os.ReadFile(c.Standby().Log())
	c.OK(err)
	proven := regexp.MustCompile(`uid=\d+ by=munge from="10\.99\.0\.1:\d+, .*" action=\S+ .*via=EnsureKernel allowed=true`)
	if !proven.Match(text) {
		t.Error("no hook came over the network")
	}
	// The first one is back, and waits.
	c.Must("root", "/bin/sh", "-c", ": >/var/log/kernel-broker/broker.log")
	c.OK(c.Broker().Start(c.Ctx))
	c.Wait(limit, "the first broker to wait", func() bool {
		text, err := os.ReadFile(c.Broker().Log())
		return err == nil && strings.Contains(string(text), "another broker acts")
	})
	c.OK(c.Standby().Stop(c.Ctx))
	c.Wait(limit, "the first broker to act", func() bool { return c.Try("root", "kernelctl", "health").Exit == 0 },
		func() string { return c.Try("root", "kernelctl", "health").Stderr })
	c.plain("n1")
	back := c.Sbatch("alice", "0", "-N1", profile)
	c.completed(back)
	c.ran("alice", back, "mitgcm", 1)
	c.home()
}
