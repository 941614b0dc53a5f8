//go:build lab

package graph

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// realSlurm starts slurmctld and a slurmd of its own on this machine, without
// any proof of who calls: it listens on loopback, for the time of a test.
func realSlurm(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("slurmd starts jobs as their users, which takes root")
	}
	dir := t.TempDir()
	conf := filepath.Join(dir, "slurm.conf")
	text := fmt.Sprintf(`ClusterName=graph
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
PartitionName=its Nodes=ALL Default=YES
`, freePort(t), freePort(t), dir)
	for _, err := range []error{os.Mkdir(filepath.Join(dir, "state"), 0o755), os.Mkdir(filepath.Join(dir, "spool"), 0o755), write(conf, text)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("SLURM_CONF", conf)
	for _, args := range [][]string{{"slurmctld", "-D", "-i"}, {"slurmd", "-D", "-N", "localhost"}} {
		daemon := exec.Command(args[0], args[1:]...)
		daemon.Env = os.Environ()
		daemon.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
		if err := daemon.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = daemon.Process.Signal(syscall.SIGTERM)
			_ = daemon.Wait() // it was told to end
		})
	}
	until(t, "an idle node", func() bool {
		out, err := exec.Command("sinfo", "-h", "-o", "%t").Output()
		return err == nil && strings.TrimSpace(string(out)) == "idle"
	})
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

// newRealWorld is a slurmWorld without the fake programs.
func newRealWorld(t *testing.T) *slurmWorld {
	t.Helper()
	return &slurmWorld{newWorld(t), ""}
}

// TestRealSlurm does with Slurm itself what the tests with the fake do.
func TestRealSlurm(t *testing.T) {
	realSlurm(t)
	t.Run("results", func(t *testing.T) {
		w := newRealWorld(t)
		results, err := w.runSlurm(t.Context(), "", "x")
		if err != nil {
			t.Fatal(err)
		}
		if text := read(t, filepath.Join(results["b"].Files(), "text")); text != "x and b" {
			t.Errorf("b is %q", text)
		}
	})
	t.Run("failure", func(t *testing.T) {
		_, err := newRealWorld(t).runSlurm(t.Context(), "break", "x")
		if err == nil || !strings.Contains(err.Error(), `step "b": it is broken`) {
			t.Error(err)
		}
	})
	t.Run("death", func(t *testing.T) {
		_, err := newRealWorld(t).runSlurm(t.Context(), "die", "x")
		var died *JobError
		if !errors.As(err, &died) || died.State != "FAILED" {
			t.Error(err)
		}
	})
	t.Run("cancel", func(t *testing.T) {
		w := newRealWorld(t)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() {
			if _, err := w.runSlurm(ctx, "wait", "x"); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
		until(t, "b works", func() bool { return w.began() == "a b" })
		cancel()
		running.Wait()
		until(t, "no job is left", func() bool {
			out, err := exec.Command("squeue", "-h").Output()
			return err == nil && len(out) == 0
		})
	})
}
