// SPDX-License-Identifier: Apache-2.0

//go:build lab

package suites

import (
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
// were back.
func (c *cluster) costs(want int, part func()) {
	c.t.Helper()
	c.settled()
	before := c.kexecs()
	part()
	c.settled()
	if got := c.kexecs() - before; got != want {
		c.t.Errorf("%d kexecs, want %d", got, want)
	}
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
