// SPDX-License-Identifier: Apache-2.0

//go:build emulated

package behaviour

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

const environmentScript = `#!/bin/bash
env | grep '^KERNEL_BROKER_' | sort > "$HOME/environment"
srun "$HOME/record.sh"
until [ -e "$HOME/go-$SLURM_JOB_ID" ]; do sleep 0.2; done
`

// A user's view of a job from its submission to its nodes' return. One node is paused so that the switch lasts long
// enough.
func userView(c *cluster) {
	c.file("alice", "environment.sh", environmentScript)
	resume := c.pause("n2")
	id := c.sbatch("alice", "-N2", "--time=10", "--kernel-profile=mitgcm", "environment.sh")
	c.waitEvent(id, "n1", "attested")
	c.whileSwitching(id)
	resume()
	job := c.waitJob(id, "RUNNING")
	c.startedAfterBoot(id, job)
	c.wait(switchLimit, "the job to say what it runs on", func() bool {
		return c.job(id)["AdminComment"] == "kernel-broker: runs on mitgcm@1, kernel "+c.kernelOf("mitgcm").release
	})
	c.wait(switchLimit, "the nodes to say what they are armed for", func() bool {
		return strings.Count(c.must("alice", "scontrol", "show", "node"), "Reason=kprof: mitgcm@1 for job "+id) == 2
	})
	c.wait(switchLimit, "the job's records", func() bool { return len(c.records("alice", id)) == 2 })
	k := c.kernelOf("mitgcm")
	want := "KERNEL_BROKER_BUILD_ID=" + k.buildID + "\nKERNEL_BROKER_PROFILE=mitgcm\nKERNEL_BROKER_RELEASE=" + k.release + "\nKERNEL_BROKER_VERSION=1"
	if got := c.read("alice", "environment"); got != want {
		c.t.Errorf("the batch script's environment:\n%s", got)
	}
	c.letGo("alice", id)
	c.waitJob(id, "COMPLETED")
	records := c.ranOn("alice", id, "mitgcm", 2)
	c.settled()
	c.wait(settleLimit, "the job to be done", func() bool { return c.jobRecord(id).Phase == "done" })
	c.timeline(id, records)
}

// whileSwitching checks the users' views while node n1 is ready and n2 is not.
func (c *cluster) whileSwitching(id string) {
	c.t.Helper()
	c.wait(switchLimit, "node n1 to be ready", func() bool {
		return c.job(id)["AdminComment"] == "kernel-broker: nodes boot mitgcm@1, 1 of 2 ready"
	})
	if out := c.must("alice", "squeue", "--noheader", "--jobs="+id, "--Format=state:20,admin_comment:80"); !strings.Contains(out, "CONFIGURING") ||
		!strings.Contains(out, "nodes boot mitgcm@1, 1 of 2 ready") {
		c.t.Errorf("squeue: %s", out)
	}
	nodes := c.must("bob", "kernelctl", "node", "list", "-o", "wide")
	c.tableRow(nodes, "n1", "steady", "mitgcm@1", "yes", id)
	c.tableRow(nodes, "n2", "mitgcm@1", "stock@1", id)
	show := c.must("alice", "kernelctl", "job", "show", id)
	for _, word := range []string{"switching", "alice", "mitgcm@1", "Node n1", "kexec", "booted", "attested"} {
		if !strings.Contains(show, word) {
			c.t.Errorf("kernelctl job show: no %q in\n%s", word, show)
		}
	}
	c.tableRow(c.must("alice", "kernelctl", "job", "list"), id, "alice", "mitgcm@1", "switching")
}

// tableRow checks that the row with this first cell has the other cells, too.
func (c *cluster) tableRow(table, first string, cells ...string) {
	c.t.Helper()
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] != first {
			continue
		}
		for _, cell := range cells {
			if !slices.Contains(fields, cell) {
				c.t.Errorf("no %q in %q", cell, line)
			}
		}
		return
	}
	c.t.Errorf("no row %q in\n%s", first, table)
}

// startedAfterBoot checks that the time limit counts from when the nodes were
// ready.
func (c *cluster) startedAfterBoot(id string, job map[string]string) {
	c.t.Helper()
	ready, ok := c.jobRecord(id).event("", "ready")
	if !ok {
		c.t.Fatalf("job %s runs and was never ready", id)
	}
	begin, err := time.ParseInLocation("2006-01-02T15:04:05", job["StartTime"], time.Local)
	if err != nil {
		c.t.Fatal(err)
	}
	end, err := time.ParseInLocation("2006-01-02T15:04:05", job["EndTime"], time.Local)
	if err != nil {
		c.t.Fatal(err)
	}
	if begin.Before(ready.At.Truncate(time.Second)) || end.Sub(begin) != 10*time.Minute {
		c.t.Errorf("job %s: ready %v, started %v, ends %v", id, ready.At, begin, end)
	}
}

// timeline checks the whole record of a job that is over.
func (c *cluster) timeline(id string, records []ran) {
	c.t.Helper()
	j := c.jobRecord(id)
	if !slices.IsSortedFunc(j.Timeline, func(a, b jobEvent) int { return a.At.Compare(b.At) }) {
		c.t.Errorf("not in order: %v", j.Timeline)
	}
	for node, steps := range map[string][]string{
		"":   {"accepted", "switching", "ready", "running", "returning", "done"},
		"n1": {"loaded", "kexec", "booted", "attested", "registered", "stock"},
		"n2": {"loaded", "kexec", "booted", "attested", "registered", "stock"},
	} {
		last := time.Time{}
		for _, step := range steps {
			e, ok := j.event(node, step)
			if !ok || e.At.Before(last) {
				c.t.Errorf("job %s: node %q: step %q is missing or out of order: %v", id, node, step, j.Timeline)
			}
			last = e.At
		}
	}
	c.proofs("before", j.Before, "stock")
	c.proofs("during", j.During, "mitgcm")
	c.proofs("after", j.After, "stock")
	told := bootIDs(records)
	for _, p := range j.During {
		if told[p.Node] != p.BootID {
			c.t.Errorf("node %s: proven boot %s, the job ran in %s", p.Node, p.BootID, told[p.Node])
		}
	}
}

func (c *cluster) proofs(when string, proofs []jobProof, profile string) {
	c.t.Helper()
	k := c.kernelOf(profile)
	if len(proofs) != 2 {
		c.t.Errorf("%s: %d proofs: %v", when, len(proofs), proofs)
	}
	for _, p := range proofs {
		if p.Profile != profile || p.BuildID != k.buildID || p.Release != k.release || p.BootID == "" {
			c.t.Errorf("%s: node %s: %v", when, p.Node, p)
		}
	}
}

// Each command that shows something supports table, JSON and YAML, and the latter two have the same content.
func outputFormats(c *cluster) {
	var jobs struct {
		Jobs []struct {
			JobID int `json:"job_id"`
		} `json:"jobs"`
	}
	c.kernelctl(&jobs, "job", "list")
	if len(jobs.Jobs) == 0 {
		id := c.sbatch("alice", "-N1", "--kernel-profile=mitgcm")
		c.waitJob(id, "COMPLETED")
		c.settled()
	}
	id := c.must("alice", "sh", "-c", "kernelctl job list | sed -n 2p | cut -d' ' -f1")
	for _, show := range []struct {
		args  []string
		words []string
	}{
		{[]string{"node", "list"}, []string{"NODES", "n[1-", "stock@1", "steady"}},
		{[]string{"node", "show", "n1"}, []string{"n1", "virtio_net", "x86_64", "stock@1", "Kexecs:"}},
		{[]string{"profile", "list"}, []string{"NAME", "mitgcm", "stock", "quiet", "1,2", "available"}},
		{[]string{"profile", "show", "quiet"}, []string{"quiet@1", "quiet@2", "loglevel=4", c.kernelOf("mitgcm").release}},
		{[]string{"job", "list"}, []string{"JOB", "mitgcm@1", id}},
		{[]string{"job", "show", id}, []string{"Job:", id, "ready", "attested", "during"}},
		{[]string{"kernel", "list"}, []string{"mitgcm", c.kernelOf("mitgcm").release}},
	} {
		argv := append([]string{"kernelctl"}, show.args...)
		table := c.must("bob", append(argv, "--output=table")...)
		if withoutClock(table) != withoutClock(c.must("bob", argv...)) {
			c.t.Errorf("%v: the table is not the default", show.args)
		}
		for _, word := range show.words {
			if !strings.Contains(table, word) {
				c.t.Errorf("%v: no %q in\n%s", show.args, word, table)
			}
		}
		var fromJSON, fromYAML any
		if err := json.Unmarshal([]byte(c.must("bob", append(argv, "--output=json")...)), &fromJSON); err != nil {
			c.t.Errorf("%v: %v", show.args, err)
		}
		if err := yaml.Unmarshal([]byte(c.must("bob", append(argv, "--output=yaml")...)), &fromYAML); err != nil {
			c.t.Errorf("%v: %v", show.args, err)
		}
		if a, b := plainValue(fromJSON), plainValue(fromYAML); !reflect.DeepEqual(a, b) {
			c.t.Errorf("%v: JSON and YAML differ:\n%v\n%v", show.args, a, b)
		}
	}
	c.refused("bob", []string{"xml", "table, json, yaml"}, "kernelctl", "node", "list", "--output=xml")
	c.refused("bob", []string{"nosuch"}, "kernelctl", "profile", "show", "nosuch")
	c.refused("bob", []string{"n99"}, "kernelctl", "node", "show", "n99")
	c.refused("bob", []string{"999999"}, "kernelctl", "job", "show", "999999")
}

// withoutClock removes a table's line with the current time: the broker sees a connected node now.
func withoutClock(table string) string {
	var left strings.Builder
	for line := range strings.Lines(table) {
		if !strings.HasPrefix(line, "Last seen:") {
			left.WriteString(line)
		}
	}
	return left.String()
}

// plainValue converts YAML's numbers to JSON's, and drops values that differ between two calls.
func plainValue(v any) any {
	switch v := v.(type) {
	case map[string]any:
		delete(v, "last_seen")
		for key, value := range v {
			v[key] = plainValue(value)
		}
	case []any:
		for i, value := range v {
			v[i] = plainValue(value)
		}
	case int:
		return float64(v)
	case time.Time:
		return v.Format(time.RFC3339Nano)
	}
	return v
}

func optionInHelp(c *cluster) {
	for _, program := range []string{"sbatch", "srun", "salloc"} {
		if out := c.must("alice", program, "--help"); !strings.Contains(out, "--kernel-profile=NAME[@VERSION]") {
			c.t.Errorf("%s --help has no --kernel-profile", program)
		}
	}
}
