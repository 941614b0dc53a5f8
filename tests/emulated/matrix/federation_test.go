// SPDX-License-Identifier: Apache-2.0

//go:build emulated

package matrix

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/tests/emulated"
)

// otherConf is a second cluster without the product, at another port of the same address, by which slurmdbd knows
// it. Its node, which never comes up, has the name of one of the first cluster's.
const otherConf = `ClusterName=other
SlurmctldHost=back(10.99.0.1)
SlurmctldPort=6917
SlurmUser=slurm
AuthType=auth/munge
CredType=cred/munge
StateSaveLocation=/var/lib/slurm/other
SlurmctldPidFile=/run/slurm/other.pid
SlurmctldLogFile=/var/log/slurm/other.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=front
FederationParameters=fed_display
NodeName=n1 NodeAddr=10.99.1.9 Port=17099 CPUs=2 State=UNKNOWN
PartitionName=main Nodes=n1 Default=YES
`

// startOther starts the second cluster and joins both in a federation.
func startOther(c cluster) {
	c.T.Helper()
	c.Must("root", "/bin/sh", "-c", `printf %s "$0" >/etc/slurm/other.conf && echo "10.99.0.1 back" >>/etc/hosts &&
install -d -o slurm -g slurm /var/lib/slurm/other`, otherConf)
	c.Must("root", "sacctmgr", "--immediate", "add", "cluster", "other")
	c.Must("root", "unshare", "--uts", "/bin/sh", "-c", `hostname back && SLURM_CONF=/etc/slurm/other.conf `+
		`setpriv --reuid slurm --regid slurm --init-groups /usr/sbin/slurmctld </dev/null >/var/log/slurm/other.start 2>&1`)
	// slurmdbd tells only those of a federation that have registered with it, and a busy slurmctld does late.
	registered := func() string {
		return c.Try("root", "sacctmgr", "--noheader", "--parsable2", "show", "cluster", "format=cluster,controlhost").Stdout
	}
	c.Wait(limit, "both clusters to register with slurmdbd", func() bool {
		return slices.Equal(slices.Sorted(strings.Lines(registered())), []string{"emulated|10.99.0.1\n", "other|10.99.0.1\n"})
	}, registered)
	c.Must("root", "sacctmgr", "--immediate", "add", "federation", "both", "clusters=emulated,other")
	c.Wait(limit, "both clusters to be federated", func() bool {
		return strings.Contains(c.Try("root", "scontrol", "show", "federation").Stdout, "PersistConnSend/Recv:Yes/Yes")
	}, func() string { return c.Try("root", "scontrol", "show", "federation").Stdout })
}

// A federated job has a number of 27 bits and more, and squeue shows the jobs of all clusters to who does not ask for
// one's own.
func TestFederation(t *testing.T) {
	t.Parallel()
	c := cluster{emulated.Start(t, func(o *emulated.Options) {
		o.Accounting = true
		o.Set = map[string]string{"FederationParameters": "fed_display"}
	})}
	startOther(c)
	there, said := "", ""
	c.Wait(limit, "the other cluster to take a job", func() bool { // a busy slurmctld registers with slurmdbd late
		r := c.Try("bob", "env", "SLURM_CONF=/etc/slurm/other.conf", "sbatch", "--parsable", "--clusters=other", "--wrap", "true")
		there, _, _ = strings.Cut(r.Stdout, ";")
		said = r.Stderr
		return r.Exit == 0
	}, func() string { return said })
	c.Wait(limit, "squeue to show the other cluster's job "+there, func() bool {
		return strings.Contains(c.Try("root", "squeue", "--noheader", "--format=%i").Stdout, there)
	}, func() string { return c.Try("root", "squeue", "--all").Stdout })

	id := c.Sbatch("alice", "0", "-N2", profile)
	if number, err := strconv.Atoi(id); err != nil || number < 1<<26 {
		t.Errorf("job %s is not federated", id)
	}
	c.completed(id)
	c.ran("alice", id, "mitgcm", 2)
	c.home()
	c.plain("n1")

	id, goOn := c.inSwitch("n1")
	c.Must("alice", "scancel", id)
	goOn()
	c.ends(id, "CANCELLED")
	c.ran("alice", id, "mitgcm", 0)
	c.home()

	// Sent to a cluster by name, it does not wait for the others'.
	id = c.Sbatch("alice", "0", "-N1", "--clusters=emulated", profile)
	c.completed(id)
	c.ran("alice", id, "mitgcm", 1)
	c.home()
}
