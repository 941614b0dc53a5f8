// SPDX-License-Identifier: Apache-2.0

package slurm

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/tests/support/mungetest"
)

// realConf is a cluster of nodes that slurmctld believes to be powered down: it allocates them to jobs and waits for
// their boots, so no node has to exist.
const realConf = `ClusterName=kb
SlurmctldHost=%[1]s(127.0.0.1)
SlurmctldPort=%[2]d
CommunicationParameters=NoCtldInAddrAny
AuthInfo=socket=%[3]s
SlurmUser=%[4]s
StateSaveLocation=%[5]s/state
SlurmctldPidFile=%[5]s/slurmctld.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SelectType=select/cons_tres
SchedulerParameters=batch_sched_delay=0,sched_min_interval=1,sched_interval=1,bf_interval=1
ResumeProgram=/bin/true
SuspendProgram=/bin/true
SuspendTime=-1
ResumeTimeout=3600
MaxArraySize=10001
MaxJobCount=20000
NodeName=n[0001-7000] State=CLOUD
NodeName=%[6]s State=CLOUD
PartitionName=main Nodes=n[0001-7000] Default=YES
PartitionName=flat Nodes=%[6]s
`

// realSlurm starts a slurmctld and returns a client and the number of bytes that squeue has printed.
func realSlurm(t *testing.T, flat []string) (*Client, string, func() int64) {
	t.Helper()
	t.Setenv("PATH", os.Getenv("PATH")+":/usr/sbin:/sbin")
	programs := map[string]string{}
	for _, name := range []string{"slurmctld", "squeue", "scontrol", "sbatch"} {
		path, err := exec.LookPath(name)
		if err != nil {
			if os.Getenv("CI") == "true" {
				t.Fatal(err)
			}
			t.Skipf("Debian's packages slurmctld and slurm-client are needed: %v", err)
		}
		programs[name] = path
	}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	host, _, _ = strings.Cut(host, ".")
	socket, dir := mungetest.Start(t).Socket, t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "state"), 0o700); err != nil {
		t.Fatal(err)
	}
	write := func(name, text string, mode os.FileMode) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	write("cgroup.conf", "", 0o600)
	write("scontrol", "#!/bin/sh\nexec "+programs["scontrol"]+" \"$@\"\n", 0o700)
	write("squeue", "#!/bin/sh\n"+programs["squeue"]+" \"$@\" >\"$0.out\" || exit\ncat \"$0.out\"\n", 0o700)
	conf := filepath.Join(dir, "slurm.conf")
	client := New(Options{BinDir: dir, Conf: conf, Limit: 5 * time.Minute})
	for range 5 { // another process may take the port first
		write("slurm.conf", fmt.Sprintf(realConf, host, freePort(t), socket, me.Username, dir, strings.Join(flat, ",")), 0o600)
		if runSlurmctld(t, client, programs["slurmctld"]) {
			return client, conf, func() int64 {
				info, err := os.Stat(filepath.Join(dir, "squeue.out"))
				if err != nil {
					t.Fatal(err)
				}
				return info.Size()
			}
		}
	}
	t.Fatal("slurmctld does not run")
	return nil, "", nil
}

// freePort is a port that no outgoing connection uses.
func freePort(t *testing.T) int {
	t.Helper()
	for {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(10000)))
		if err == nil {
			_ = l.Close()
			return l.Addr().(*net.TCPAddr).Port
		}
	}
}

func environ(c *Client) []string {
	return append(slices.Clone(c.runner.Environ), "SLURM_CONF="+c.runner.Conf)
}

// runSlurmctld returns when it answers, or false when it has ended.
func runSlurmctld(t *testing.T, client *Client, program string) bool {
	t.Helper()
	var log bytes.Buffer
	cmd := exec.Command(program, "-D")
	cmd.Env, cmd.Stdout, cmd.Stderr = environ(client), &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait()
	}()
	for {
		select {
		case <-ended:
			t.Logf("slurmctld ended: %s", log.String())
			return false
		case <-time.After(50 * time.Millisecond):
		}
		if _, _, err := client.run(t.Context(), client.scontrol, "ping"); err == nil {
			// Kill it: a SIGTERM may not end it (ADR 0022).
			t.Cleanup(func() {
				_ = cmd.Process.Kill()
				<-ended
			})
			return true
		}
	}
}

// A real squeue prints a node list in full, however long, and little for a pending job.
func TestRealSqueue(t *testing.T) {
	var odd, flat []string
	for n := 1; n <= 6800; n += 2 {
		odd = append(odd, fmt.Sprintf("%04d", n))
	}
	for n := range 2500 {
		flat = append(flat, fmt.Sprintf("f%da", 1000+n)) // no two fit into brackets
	}
	scattered := "n[" + strings.Join(odd, ",") + "]"
	client, conf, printed := realSlurm(t, flat)
	script := filepath.Join(filepath.Dir(conf), "job.sh")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	submit := func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "sbatch", append(append([]string{"--output=/dev/null"}, args...), script)...)
		cmd.Env = environ(client)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("sbatch: %v\n%s", err, out)
		}
	}
	submit("-N3400", "--nodelist="+scattered)
	submit("-N2500", "--partition=flat")
	submit("-N1", ":", "-N2")
	submit("--array=7-8", "-N1")
	view := seeUntil(t, client, func(v kb.SlurmView) bool { return len(v.Jobs) == 6 })
	byReference := map[string]kb.SlurmJob{}
	for _, j := range view.Jobs {
		if j.Unread != "" || int(j.NodeCount) != len(j.Nodes) || j.State != "CONFIGURING" || !j.Holds() || j.UID != uint32(os.Getuid()) {
			t.Errorf("job %s, %s: %d nodes of %d, %q", j.Reference, j.State, len(j.Nodes), j.NodeCount, j.Unread)
		}
		byReference[j.Reference] = j
	}
	for _, c := range []struct {
		reference, last string
		nodes           int
	}{{"1", "n6799", 3400}, {"2", "f3499a", 2500}, {"3+0", "", 1}, {"3+1", "", 2}, {"5_7", "", 1}, {"5_8", "", 1}} {
		nodes := byReference[c.reference].Nodes
		if len(nodes) != c.nodes || c.last != "" && nodes[len(nodes)-1] != c.last {
			t.Errorf("job %s has %d nodes, not %d to %s", c.reference, len(nodes), c.nodes, c.last)
		}
	}
	before := printed()
	submit("--hold", "--array=0-9999", "-N1")
	view = seeUntil(t, client, func(v kb.SlurmView) bool { return len(v.Queue) == mostTasks })
	if each := (printed() - before) / 10000; each > 300 {
		t.Errorf("squeue prints %d bytes for each task that waits", each)
	}
	if last := view.Queue[mostTasks-1]; last.Task != mostTasks-1 || len(last.Nodes) > 0 || last.Unread != "" || last.Reason != "JobHeldUser" || last.NodeCount != 1 || last.Partition != "main" {
		t.Errorf("%+v", last)
	}
}

func seeUntil(t *testing.T, client *Client, is func(kb.SlurmView) bool) kb.SlurmView {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for {
		view, err := client.View(ctx, false)
		if err != nil {
			t.Fatal(err)
		}
		if is(view) {
			return view
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%d jobs, %d in the queue", len(view.Jobs), len(view.Queue))
		case <-time.After(50 * time.Millisecond):
		}
	}
}
