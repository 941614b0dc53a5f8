// SPDX-License-Identifier: Apache-2.0

// Package slurmtest starts a real Slurm of one node, for tests of what runs as
// its jobs. Nothing in it proves who calls: it listens on loopback, for the time
// of a test.
package slurmtest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Partition is the only one.
const Partition = "its"

// slurmd believes in these four CPUs, however many there are.
const conf = `ClusterName=graph
SlurmctldHost=localhost
SlurmctldPort=%d
SlurmdPort=%d
AuthType=auth/none
CredType=cred/none
SlurmUser=root
SlurmdUser=root
StateSaveLocation=%[3]s/state
SlurmdSpoolDir=%[3]s/spool
SlurmctldPidFile=%[3]s/slurmctld.pid
SlurmdPidFile=%[3]s/slurmd.pid
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
NodeName=localhost CPUs=4 RealMemory=4000
PartitionName=` + Partition + ` Nodes=ALL Default=YES
`

// Start starts slurmctld and a slurmd and waits until the node is idle. Slurm's
// commands find them by the environment, which the test has until its end.
func Start(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("slurmd starts jobs as their users, which takes root")
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "slurm.conf")
	for _, err := range []error{
		os.Mkdir(filepath.Join(dir, "state"), 0o755),
		os.Mkdir(filepath.Join(dir, "spool"), 0o755),
		os.WriteFile(file, fmt.Appendf(nil, conf, freePort(t), freePort(t), dir), 0o644),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("SLURM_CONF", file)
	for _, args := range [][]string{{"slurmctld", "-D", "-i"}, {"slurmd", "-D", "-N", "localhost"}} {
		daemon := exec.Command(args[0], args[1:]...)
		daemon.Env = os.Environ()
		daemon.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
		if err := daemon.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = daemon.Process.Signal(syscall.SIGTERM)
			// slurmctld does not always end when it is told to.
			late := time.AfterFunc(20*time.Second, func() { _ = daemon.Process.Kill() })
			_ = daemon.Wait() // it was told to end
			late.Stop()
		})
	}
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		out, err := exec.Command("sinfo", "-h", "-o", "%t").Output()
		if err == nil && strings.TrimSpace(string(out)) == "idle" {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the node is %q after two minutes, not idle (%v)", out, err)
		}
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}
