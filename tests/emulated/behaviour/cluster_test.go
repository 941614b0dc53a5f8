// SPDX-License-Identifier: Apache-2.0

//go:build emulated

package behaviour

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kernelbroker/kernelbroker/tests/emulated"
)

// Limits of waiting. They are generous: a slow machine must not fail a test,
// and a condition that holds is noticed at once.
const (
	switchLimit = emulated.Limit
	settleLimit = emulated.Limit
)

// cluster is an emulated cluster of two nodes for one test.
type cluster struct {
	*emulated.Trial
	t   testing.TB
	ctx context.Context
	// requeued has the runs of jobs that an earlier section was judged by.
	requeued map[string]bool
}

func start(t *testing.T, change func(*emulated.Options)) *cluster {
	t.Helper()
	s := emulated.Start(t, func(o *emulated.Options) {
		o.Nodes = 2
		// Two kernels that a catalog's tests name, beside stock.
		o.Kernels = []string{"mitgcm", "suite-stock"}
		o.Agent = map[string]any{"boot": map[string]any{"extra_drivers": []string{"virtio_net"}}}
		if change != nil {
			change(o)
		}
	})
	return &cluster{Trial: s, t: t, ctx: s.Ctx, requeued: map[string]bool{}}
}

// ran is the record of a process of a job.
type ran = emulated.Ran

type kernel struct{ release, buildID string }

func (c *cluster) try(user string, argv ...string) emulated.Result {
	c.t.Helper()
	return c.With(c.t).Try(user, argv...)
}

func (c *cluster) must(user string, argv ...string) string {
	c.t.Helper()
	return c.With(c.t).Must(user, argv...)
}

func (c *cluster) wait(limit time.Duration, what string, done func() bool) {
	c.t.Helper()
	c.With(c.t).Wait(limit, what, done)
}

func (c *cluster) file(user, name, text string) {
	c.t.Helper()
	c.With(c.t).File(user, name, text)
}

// refused runs a command that has to fail with all of the texts on stderr.
func (c *cluster) refused(user string, words []string, argv ...string) {
	c.t.Helper()
	r := c.answered(user, argv...)
	if r.Exit == 0 {
		c.t.Fatalf("%s: accepted: %s", strings.Join(argv, " "), r.Stdout)
	}
	for _, word := range words {
		if !strings.Contains(r.Stderr, word) {
			c.t.Errorf("%s: %q is not in its answer:\n%s", strings.Join(argv, " "), word, r.Stderr)
		}
	}
}

// answered repeats a command while its submit succeeds only because the broker's answer was late.
func (c *cluster) answered(user string, argv ...string) emulated.Result {
	c.t.Helper()
	var r emulated.Result
	c.wait(settleLimit, "the broker's answer at submit", func() bool {
		r = c.try(user, argv...)
		late := strings.Contains(r.Stderr, "did not answer within")
		if words := strings.Fields(r.Stdout); late && r.Exit == 0 && len(words) > 0 {
			c.must(user, "scancel", words[len(words)-1])
		}
		return !late
	})
	return r
}

// kernelctl runs a command with JSON output and decodes it.
func (c *cluster) kernelctl(into any, args ...string) {
	c.t.Helper()
	out := c.must("alice", append(append([]string{"kernelctl"}, args...), "--output", "json")...)
	if err := json.Unmarshal([]byte(out), into); err != nil {
		c.t.Fatalf("kernelctl %v: %v\n%s", args, err, out)
	}
}

// prepare puts the scripts into the users' homes.
func (c *cluster) prepare(users ...string) {
	c.t.Helper()
	for _, user := range users {
		c.file(user, "record.sh", "#!/bin/sh\nexec /emulated/record\n")
		c.file(user, "job.sh", "#!/bin/bash\nsrun /emulated/record\nsleep \"${1:-0}\"\n")
	}
}

func (c *cluster) records(user, id string) []ran {
	c.t.Helper()
	return c.With(c.t).Records(user, id)
}

// sbatch submits the recording job and returns its id.
func (c *cluster) sbatch(user string, args ...string) string {
	c.t.Helper()
	if !slices.ContainsFunc(args, func(a string) bool { return strings.HasSuffix(a, ".sh") }) {
		args = append(args, "job.sh")
	}
	id, _, _ := strings.Cut(c.must(user, append([]string{"sbatch", "--parsable"}, args...)...), ";")
	return id
}

func (c *cluster) job(id string) map[string]string {
	c.t.Helper()
	return c.With(c.t).Job(id)
}

func (c *cluster) waitJob(id string, states ...string) map[string]string {
	c.t.Helper()
	return c.With(c.t).WaitJob(id, states...)
}

func (c *cluster) ranOn(user, id, profile string, nodes int) []ran {
	c.t.Helper()
	records := c.records(user, id)
	if len(records) != nodes {
		c.t.Fatalf("job %s: ran %d times, want %d: %v", id, len(records), nodes, records)
	}
	for _, r := range records {
		c.checkRecord(r, profile)
	}
	return records
}

func (c *cluster) checkRecord(r ran, profile string) {
	c.t.Helper()
	k := c.kernelOf(profile)
	c.With(c.t).CheckRecord(r, emulated.Kernel{Release: k.release, BuildID: k.buildID}, profile)
}

// kernelOf reads a profile's default version from the broker.
func (c *cluster) kernelOf(profile string) kernel {
	c.t.Helper()
	var p struct {
		Versions []struct {
			Kernel struct {
				Release string `json:"release"`
				BuildID string `json:"build_id"`
			} `json:"kernel"`
		} `json:"versions"`
	}
	c.kernelctl(&p, "profile", "show", profile)
	if len(p.Versions) == 0 {
		c.t.Fatalf("profile %s has no versions", profile)
	}
	k := p.Versions[len(p.Versions)-1].Kernel
	return kernel{release: k.Release, buildID: k.BuildID}
}

// settled waits until every node is idle in Slurm and proven on stock, and
// checks on the nodes themselves that they are.
func (c *cluster) settled() {
	c.t.Helper()
	c.With(c.t).Settled(settleLimit)
	c.wait(settleLimit, "nodes on stock", func() bool {
		var list struct {
			Nodes []struct {
				Profile  string `json:"running_profile"`
				Phase    string `json:"phase"`
				Attested bool   `json:"attested"`
			} `json:"nodes"`
		}
		c.kernelctl(&list, "node", "list")
		for _, n := range list.Nodes {
			if n.Profile != "stock" || !n.Attested || n.Phase != "steady" {
				return false
			}
		}
		return len(list.Nodes) == len(c.Nodes())
	})
}

func held(job map[string]string) bool {
	return job["JobState"] == "PENDING" && job["Priority"] == "0"
}

// read returns a file of a user's home.
func (c *cluster) read(user, name string) string {
	c.t.Helper()
	return c.With(c.t).Read(user, name)
}

// pause stops a node; the returned function resumes it.
func (c *cluster) pause(name string) (resume func()) {
	c.t.Helper()
	n := c.Node(name)
	if err := n.Pause(c.ctx); err != nil {
		c.t.Fatal(err)
	}
	return func() {
		c.t.Helper()
		if err := n.Resume(c.ctx); err != nil {
			c.t.Fatal(err)
		}
	}
}

// The main catalog of a test's own profiles.
func (c *cluster) catalogDir() string { return c.Path("catalog") }

// slurmctldSaid is slurmctld's log.
func (c *cluster) slurmctldSaid() string {
	c.t.Helper()
	text, err := os.ReadFile(c.Slurmctld().Log())
	if err != nil {
		c.t.Fatal(fmt.Errorf("log: %w", err))
	}
	return string(text)
}
