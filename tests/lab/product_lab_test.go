// SPDX-License-Identifier: Apache-2.0

//go:build lab

package lab

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// productOptions uses the built product, for tests of the lab's support for it. The suites test the product's behaviour.
func productOptions(t *testing.T) Options {
	t.Helper()
	o := Options{Nodes: 2, ExternalEtcd: true, Product: os.Getenv("KBLAB_TEST_PRODUCT")}
	full, err := o.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := findProduct(full, "", append(frontFiles, nodeFiles...)); err != nil {
		t.Skip(err)
	}
	if _, err := os.Stat(filepath.Join(full.Repo, "build/kernels/mitgcm/bzImage")); err != nil {
		t.Skipf("the kernel mitgcm is not built: %v", err)
	}
	return o
}

// well waits until the broker, its store, Slurm and all agents are well.
func well(t *testing.T, l *Lab, after string) {
	t.Helper()
	last := ""
	err := Wait(t.Context(), 2*time.Minute, "a well product after "+after, func() (bool, error) {
		r, err := l.Exec(t.Context(), "alice", "kernelctl", "health")
		last = r.Stdout + r.Stderr
		return r.Exit == 0 && strings.Contains(r.Stdout, "2 of 2 nodes connected"), err
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, last)
	}
}

func TestProductInTheLab(t *testing.T) {
	l := up(t, productOptions(t))
	noteNetwork(t, l)
	well(t, l, "up")
	for _, d := range []Daemon{l.Broker(), l.Etcd()} {
		if err := d.Kill9(t.Context()); err != nil {
			t.Fatal(err)
		}
		if running, err := d.Running(t.Context()); running || err != nil {
			t.Errorf("%s after kill -9: running %v, %v", d.name, running, err)
		}
		if err := d.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		well(t, l, d.name+" killed and started")
	}
	if err := l.Broker().Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := l.Broker().Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	testAgent(t, l)
	testBMC(t, l)
	testSwitch(t, l)
}

func testAgent(t *testing.T, l *Lab) {
	n := l.Node(1)
	pid := func() string {
		r, err := n.Exec(t.Context(), "pidof", "kernel-broker-agent")
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(r.Stdout)
	}
	old := pid()
	if err := n.KillAgent(t.Context()); err != nil {
		t.Fatal(err)
	}
	err := Wait(t.Context(), time.Minute, "a new agent", func() (bool, error) {
		now := pid()
		return now != "" && now != old, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	well(t, l, "the agent was killed")
}

// testBMC resets a node as the broker would.
func testBMC(t *testing.T, l *Lab) {
	n := l.Node(2)
	old := liveBoot(t, n)
	if l.state.Mode != ModeSingle {
		if r, err := l.Exec(t.Context(), "alice", "kblab", "bmc", "reset", "n2"); err != nil || r.Exit == 0 {
			t.Errorf("a user could reset a node: %+v, %v", r, err)
		}
	}
	run(t, l, service(l.state.Mode, "slurm"), "kblab", "bmc", "reset", "n2")
	waitReboot(t, n, old)
	well(t, l, "a reset")
	if err := l.WaitIdle(t.Context(), 5*time.Minute); err != nil {
		t.Fatal(err)
	}
}

// testSwitch runs one job on another kernel.
func testSwitch(t *testing.T, l *Lab) {
	script := "#!/bin/bash\nsrun uname -r >releases\n"
	if err := os.WriteFile(filepath.Join(l.Home("alice"), "job.sh"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	batch(t, l, "-N2", "--kernel-profile=mitgcm", "job.sh")
	got := lines(run(t, l, "alice", "cat", "releases"))
	if len(got) != 2 || !strings.HasSuffix(got[0], "-mitgcm") || got[0] != got[1] {
		t.Errorf("kernels of the job: %v", got)
	}
	ready(t, l)
	if got := lines(run(t, l, "bob", "srun", "-N2", "uname", "-r")); len(got) != 2 || got[0] != l.Kernel().Release || got[1] != got[0] {
		t.Errorf("kernels of a plain job: %v, want %s", got, l.Kernel().Release)
	}
}
