// SPDX-License-Identifier: Apache-2.0

//go:build lab

package suites

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
)

// quietProfile has the kernel of mitgcm under another name: two profiles that
// one cluster runs side by side, and two versions of one of them.
const quietProfile = `name: quiet
application: a model that writes no messages
description: The slim kernel with two sets of arguments
default_version: 2
versions:
  - version: 1
    kernel: mitgcm
    arguments: [quiet]
  - version: 2
    kernel: mitgcm
    arguments: [loglevel=4]
`

// apply registers a profile whose kernels the lab has.
func (c *cluster) apply(name, text string) {
	c.t.Helper()
	dir := filepath.Join(c.CatalogDir(), "suite", name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		c.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".yaml"), []byte(text), 0o644); err != nil {
		c.t.Fatal(err)
	}
	c.must("root", "kernelctl", "profile", "apply", "/run/lab/catalog/suite/"+name, "--kernels", "/run/lab/catalog/kernels")
}

// letGo ends a job of hold.sh.
func (c *cluster) letGo(user, id string) {
	c.t.Helper()
	c.file(user, "go-"+id, "")
}

// kexecs is the number of boots by kexec on all nodes.
func (c *cluster) kexecs() int {
	c.t.Helper()
	sum := 0
	for _, n := range c.nodes() {
		sum += n.Kexecs
	}
	return sum
}

// costs runs part of a test and checks how many kexecs it took until all nodes
// were back. A run whose boot Slurm confused has cost up to two on each of its nodes.
func (c *cluster) costs(want int, part func()) {
	c.t.Helper()
	c.settled()
	before, confused := c.kexecs(), c.confused()
	part()
	c.settled()
	got, more := c.kexecs()-before, 2*(c.confused()-confused)
	if got < want || got > want+more {
		c.t.Errorf("%d kexecs, want %d to %d", got, want, want+more)
	}
}

// confused counts the nodes of runs that were requeued because Slurm took an earlier start of slurmd for their boot.
func (c *cluster) confused() (nodes int) {
	c.t.Helper()
	var list struct {
		Jobs []struct {
			Nodes  []string `json:"nodes"`
			Reason string   `json:"reason"`
		} `json:"jobs"`
	}
	out := c.must("root", "kernelctl", "job", "list", "--limit=1000", "--output", "json")
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		c.t.Fatalf("kernelctl job list: %v\n%s", err, out)
	}
	for _, j := range list.Jobs {
		if strings.Contains(j.Reason, "took an earlier start of slurmd") {
			nodes += len(j.Nodes)
		}
	}
	return nodes
}

// noJobs checks that no refused job exists.
func (c *cluster) noJobs() {
	c.t.Helper()
	if out := c.must("root", "squeue", "--noheader", "--all"); out != "" {
		c.t.Errorf("jobs in the queue:\n%s", out)
	}
}

// lastLine of a command's output: salloc and srun print messages of their own.
func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}
