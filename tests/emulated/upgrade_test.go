// SPDX-License-Identifier: Apache-2.0

//go:build emulated

package emulated

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// earlier is the commit whose programs and records sites have today.
const earlier = "51042c9f"

// programsOf builds a commit's programs, once, and returns their folder.
func programsOf(t *testing.T, repo, commit string) string {
	t.Helper()
	top := filepath.Join(repo, "build", "releases", commit)
	if _, err := os.Stat(filepath.Join(top, "built")); err == nil {
		return filepath.Join(top, "build")
	}
	if err := os.MkdirAll(top, 0o755); err != nil {
		t.Fatal(err)
	}
	run := func(in []byte, argv ...string) []byte {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
		cmd.Dir, cmd.Stdin, cmd.Env = top, bytes.NewReader(in), append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=mod")
		var out, wrong bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &wrong
		if err := cmd.Run(); err != nil {
			t.Fatalf("%s: %v: %s", strings.Join(argv, " "), err, wrong.Bytes())
		}
		return out.Bytes()
	}
	run(run(nil, "git", "-C", repo, "archive", commit), "tar", "-x")
	run(nil, "go", "build", "-trimpath", "-o", "build/bin/", "./kernel-broker/cmd/kernel-broker", "./kernel-broker/cmd/kernel-broker-agent",
		"./kernel-broker/cmd/kernel-broker-hook", "./kernel-broker/cmd/kernel-broker-node-hook", "./kernel-broker/cmd/kernelctl")
	run(nil, "make", "-s", "-C", "slurm-plugin")
	run(nil, "touch", "built")
	return filepath.Join(top, "build")
}

// mixed is a cluster that has the programs of a release, and gets those of today.
type mixed struct {
	*Trial
	today string
}

func startEarlier(t *testing.T) mixed {
	t.Helper()
	today := ""
	s := Start(t, func(o *Options) {
		today = o.Product
		o.Product = programsOf(t, o.Repo, earlier)
	})
	return mixed{s, today}
}

// install replaces programs, as a package does.
func (m mixed) install(programs ...string) {
	m.T.Helper()
	for _, f := range productFiles {
		if !slices.Contains(programs, filepath.Base(f[0])) {
			continue
		}
		to := filepath.Join(m.Options().Dir, "product", f[1])
		m.OK(os.Remove(to))
		m.OK(link(filepath.Join(m.today, f[0]), to))
	}
}

// agents starts the agents of nodes anew.
func (m mixed) agents(nodes ...string) {
	m.T.Helper()
	for _, name := range nodes {
		m.OK(m.Node(name).KillAgent(m.Ctx))
	}
	m.Wait(Limit, "the agents", func() bool {
		list := strings.ReplaceAll(m.Must("root", "kernelctl", "node", "list", "--output", "json"), " ", "")
		return strings.Count(list, `"connected":true`) == m.Options().Nodes
	})
}

// job runs on all nodes, on the profile's kernel.
func (m mixed) job(profile string) {
	m.T.Helper()
	id := m.Sbatch("alice", "0", fmt.Sprintf("-N%d", m.Options().Nodes), "--kernel-profile="+profile)
	m.WaitJob(id, "COMPLETED")
	m.RanOn("alice", id, profile, m.Options().Nodes)
	m.Settled(Limit)
}

// A site's broker is replaced while a job runs and another waits, then its agents one by one, and Slurm's hooks. The records of
// the earlier broker are read, agents of both releases work side by side, and no node boots for it.
func TestUpgradeTheBrokerFirst(t *testing.T) {
	m := startEarlier(t)
	m.job("lammps")
	first := m.Sbatch("alice", "held", "-N2", "--nodelist=n1,n2", "--kernel-profile=mitgcm")
	m.Wait(Limit, "the job's steps", func() bool { return len(m.Records("alice", first)) == 2 })
	second := m.Sbatch("alice", "0", "-N1", "--nodelist=n2", "--kernel-profile=lammps")
	boots := len(m.Boots())

	m.install("kernel-broker", "kernelctl", "kernel-broker-hook")
	m.OK(m.Broker().Restart(m.Ctx, syscall.SIGTERM))
	m.Never(5*time.Second, "a boot, or an end of the job", func() bool { return len(m.Boots()) != boots || m.Job(first)["JobState"] != "RUNNING" })
	if list := m.Must("root", "kernelctl", "job", "list"); !strings.Contains(list, "lammps") || !strings.Contains(list, "mitgcm") {
		t.Errorf("the earlier jobs are not among\n%s", list)
	}
	m.LetGo("alice", first)
	m.WaitJob(first, "COMPLETED")
	m.RanOn("alice", first, "mitgcm", 2)
	m.WaitJob(second, "COMPLETED")
	m.RanOn("alice", second, "lammps", 1)
	m.job("mitgcm") // agents of the earlier release

	m.install("kernel-broker-agent", "kernel-broker-node-hook")
	m.agents("n1")
	m.job("lammps") // one of today's among them
	m.agents("n2", "n3")
	m.job("mitgcm")
}

// Agents that are younger than their broker work with it.
func TestUpgradeTheAgentsFirst(t *testing.T) {
	m := startEarlier(t)
	held := m.Sbatch("alice", "held", "-N1", "--nodelist=n1", "--kernel-profile=mitgcm")
	m.Wait(Limit, "the job's step", func() bool { return len(m.Records("alice", held)) == 1 })
	m.install("kernel-broker-agent", "kernel-broker-node-hook")
	m.agents("n1", "n2", "n3")
	m.LetGo("alice", held)
	m.WaitJob(held, "COMPLETED")
	m.RanOn("alice", held, "mitgcm", 1)
	m.job("lammps")
	m.job("mitgcm")
}
