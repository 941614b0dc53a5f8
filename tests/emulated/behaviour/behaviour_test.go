// SPDX-License-Identifier: Apache-2.0

//go:build emulated

package behaviour

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// holdScript runs until its user ends it, so that a test can examine the running job.
const holdScript = `#!/bin/bash
srun "$HOME/record.sh"
until [ -e "$HOME/go-$SLURM_JOB_ID" ]; do sleep 0.2; done
`

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

// Everything that a user can do and see, on one cluster. Each section ends with
// all nodes idle and on stock.
func TestBehaviour(t *testing.T) {
	t.Parallel()
	c := start(t, nil)
	c.prepare("alice", "bob")
	for _, user := range []string{"alice", "bob"} {
		c.file(user, "hold.sh", holdScript)
	}
	c.apply("quiet", quietProfile)
	for _, s := range []struct {
		name string
		run  func(*cluster)
	}{
		{"Plain", plainJobs},
		{"SbatchAndSrun", sbatchAndSrun},
		{"Salloc", sallocAndSteps},
		{"View", userView},
		{"Output", outputFormats},
		{"Help", optionInHelp},
		{"Array", arrayReuse},
		{"ArrayWithPlainJobs", arrayAmongPlainJobs},
		{"OtherUsersJob", reuseAcrossUsers},
		{"ReturnFirst", returnBeforeOthers},
		{"HeterogeneousPlain", heterogeneousWithPlain},
		{"HeterogeneousTwo", heterogeneousTwoProfiles},
		{"CancelBefore", cancelBefore},
		{"CancelAtOnce", cancelAtOnce},
		{"CancelDuring", cancelDuring},
		{"CancelAfter", cancelAfter},
		{"CancelSrun", cancelSrun},
		{"Names", oddNames},
		{"TwoProfiles", twoProfiles},
		{"SharedNodes", sharedNodes},
		{"Snapshot", staleSnapshot},
		{"Apply", applyRefused},
		{"NoSuchNode", noSuchNode},
	} {
		c.section(s.name, s.run)
	}
	c.neverCrashed()
}

// section runs a part of a test and sees to it that the next one finds the
// cluster as this one did.
func (c *cluster) section(name string, run func(*cluster)) {
	c.t.Helper()
	passed := c.t.(*testing.T).Run(name, func(t *testing.T) {
		begin := time.Now()
		part := &cluster{Trial: c.Trial, t: t, ctx: t.Context(), requeued: c.requeued}
		run(part)
		part.settled()
		part.noRequeues()
		t.Logf("%.1f s", time.Since(begin).Seconds())
	})
	if passed {
		return
	}
	c.Describe()
	for _, n := range c.Nodes() {
		c.OK(n.Resume(c.ctx))
	}
	c.must("root", "scancel", "--user=alice")
	c.must("root", "scancel", "--user=bob")
	c.settled()
}

// noRequeues checks that no job needed a second run, except when Slurm mistook a start of slurmd for the awaited boot.
func (c *cluster) noRequeues() {
	c.t.Helper()
	var list struct {
		Jobs []struct {
			Reference string `json:"reference"`
			Restarts  int    `json:"restart_count"`
			Reason    string `json:"reason"`
			Phase     string `json:"phase"`
		} `json:"jobs"`
	}
	c.kernelctl(&list, "job", "list", "--limit=1000")
	// Slurm requeues all components of a heterogeneous job with one.
	chance := map[string]bool{}
	for _, j := range list.Jobs {
		whole, _, _ := strings.Cut(j.Reference, "+")
		run := fmt.Sprintf("%s/%d", whole, j.Restarts)
		chance[run] = chance[run] || strings.Contains(j.Reason, "took an earlier start of slurmd")
	}
	for _, j := range list.Jobs {
		if j.Phase == "waiting" {
			continue // in Slurm's queue, without a run
		}
		run := fmt.Sprintf("%s/%d", j.Reference, j.Restarts)
		whole, _, _ := strings.Cut(j.Reference, "+")
		known := c.requeued[run]
		c.requeued[run] = true
		switch {
		case j.Restarts == 0, known:
		case chance[fmt.Sprintf("%s/%d", whole, j.Restarts-1)]:
			c.t.Logf("job %s: run %d after a start of slurmd that Slurm mistook for a boot", j.Reference, j.Restarts)
		default:
			c.t.Errorf("job %s was requeued %d times", j.Reference, j.Restarts)
		}
	}
}

// apply registers a profile whose kernels the lab has.
func (c *cluster) apply(name, text string) {
	c.t.Helper()
	c.must("root", c.applyCommand(name, map[string]string{name + ".yaml": text})...)
}

// applyCommand writes profiles into a folder and returns the command that
// registers them.
func (c *cluster) applyCommand(folder string, files map[string]string) []string {
	c.t.Helper()
	dir := filepath.Join(c.catalogDir(), "suite", folder)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		c.t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			c.t.Fatal(err)
		}
	}
	return []string{"kernelctl", "profile", "apply", "/catalog/suite/" + folder, "--kernels", "/catalog/kernels"}
}

// letGo ends a job of hold.sh.
func (c *cluster) letGo(user, id string) {
	c.t.Helper()
	c.file(user, "go-"+id, "")
}

// held submits a job that runs until letGo.
func (c *cluster) held(user string, args ...string) string {
	c.t.Helper()
	return c.sbatch(user, append(args, "hold.sh")...)
}

// costs runs part of a test and checks how many kexecs it took until all nodes
// were back. A run whose boot Slurm confused has cost up to two on each of its nodes.
func (c *cluster) costs(want int, part func()) {
	c.t.Helper()
	confused := c.confused()
	got := c.spent(part)
	if more := 2 * (c.confused() - confused); got < want || got > want+more {
		c.t.Errorf("%d kexecs, want %d to %d", got, want, want+more)
	}
}

// confused counts the nodes of runs that were requeued because Slurm took an earlier start of slurmd for their boot.
func (c *cluster) confused() (nodes int) {
	c.t.Helper()
	var list struct {
		Jobs []jobRecord `json:"jobs"`
	}
	c.kernelctl(&list, "job", "list", "--limit=1000")
	for _, j := range list.Jobs {
		if strings.Contains(j.Reason, "took an earlier start of slurmd") {
			nodes += len(j.Nodes)
		}
	}
	return nodes
}

// spent counts the kexecs of a part, from one settled cluster to the next.
func (c *cluster) spent(part func()) int {
	c.t.Helper()
	c.settled()
	before := c.Kexecs()
	part()
	c.settled()
	return c.Kexecs() - before
}

// reuses is costs for parts in which nodes go from job to job without a boot. An epilog waits less than three seconds
// for the broker, and after a late answer its node boots: such a part is repeated.
func (c *cluster) reuses(want int, part func()) {
	c.t.Helper()
	got := 0
	for range 3 {
		if got = c.spent(part); got <= want {
			break
		}
		c.t.Logf("%d kexecs, want %d: once more", got, want)
	}
	if got != want {
		c.t.Errorf("%d kexecs, want %d", got, want)
	}
}

// jobRecord is kernelctl's view of a job.
type jobRecord struct {
	Phase    string     `json:"phase"`
	User     string     `json:"user"`
	Profile  string     `json:"profile"`
	Version  int        `json:"version"`
	Nodes    []string   `json:"nodes"`
	Reason   string     `json:"reason"`
	Timeline []jobEvent `json:"timeline"`
	Before   []jobProof `json:"before"`
	During   []jobProof `json:"during"`
	After    []jobProof `json:"after"`
}

type jobEvent struct {
	At     time.Time `json:"at"`
	Node   string    `json:"node"`
	Event  string    `json:"event"`
	Detail string    `json:"detail"`
}

type jobProof struct {
	Node    string `json:"node"`
	Profile string `json:"profile"`
	Release string `json:"release"`
	BuildID string `json:"build_id"`
	BootID  string `json:"boot_id"`
}

func (c *cluster) jobRecord(id string) jobRecord {
	c.t.Helper()
	var j jobRecord
	c.kernelctl(&j, "job", "show", id)
	return j
}

// event returns a step of the job, or of one of its nodes.
func (j jobRecord) event(node, name string) (jobEvent, bool) {
	i := slices.IndexFunc(j.Timeline, func(e jobEvent) bool { return e.Node == node && e.Event == name })
	if i < 0 {
		return jobEvent{}, false
	}
	return j.Timeline[i], true
}

// known reports whether the broker has the job.
func (c *cluster) known(id string) (jobRecord, bool) {
	c.t.Helper()
	var j jobRecord
	r := c.try("alice", "kernelctl", "job", "show", id, "--output", "json")
	if r.Exit != 0 {
		return j, false
	}
	if err := json.Unmarshal([]byte(r.Stdout), &j); err != nil {
		c.t.Fatal(err)
	}
	return j, true
}

// waitEvent waits for a step of a job.
func (c *cluster) waitEvent(id, node, name string) {
	c.t.Helper()
	c.wait(switchLimit, fmt.Sprintf("job %s: %s on %q", id, name, node), func() bool {
		j, ok := c.known(id)
		if !ok {
			return false
		}
		_, ok = j.event(node, name)
		return ok
	})
}

// neverRan checks that nothing of the job ran.
func (c *cluster) neverRan(user, id string) {
	c.t.Helper()
	if r := c.records(user, id); len(r) > 0 {
		c.t.Errorf("job %s ran: %v", id, r)
	}
}

// bootIDs of a job's nodes.
func bootIDs(records []ran) map[string]string {
	ids := map[string]string{}
	for _, r := range records {
		ids[r["node"]] = r["boot_id"]
	}
	return ids
}

// lastLine of a command's output: salloc and srun print messages of their own.
func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}
