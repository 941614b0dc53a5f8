// SPDX-License-Identifier: Apache-2.0

//go:build lab

package suites

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kernelbroker/kernelbroker/tests/lab"
)

// recordScript is run by every job on each node: it records its kernel, read from the kernel itself.
const recordScript = `#!/bin/bash
id=$(od -An -v -tx1 /sys/kernel/notes | tr -d ' \n' | grep -o '040000001400000003000000474e5500.\{40\}' | cut -c33-72)
echo "ran job=$SLURM_JOB_ID array=$SLURM_ARRAY_JOB_ID task=$SLURM_ARRAY_TASK_ID restart=${SLURM_RESTART_COUNT:-0} node=$(hostname) release=$(uname -r) build_id=$id \
boot_id=$(cat /proc/sys/kernel/random/boot_id) profile=$KERNEL_BROKER_PROFILE version=$KERNEL_BROKER_VERSION \
told_release=$KERNEL_BROKER_RELEASE told_build_id=$KERNEL_BROKER_BUILD_ID" >> "$HOME/record"
sleep "${1:-0}"
`

// ran is one line of a job's record.
type ran map[string]string

// prepare puts the scripts into the users' homes.
func (c *cluster) prepare(users ...string) {
	c.t.Helper()
	for _, user := range users {
		c.file(user, "record.sh", recordScript)
		c.file(user, "job.sh", "#!/bin/bash\nsrun \"$HOME/record.sh\" \"$@\"\n")
	}
}

// file writes an executable file into a user's home.
func (c *cluster) file(user, name, text string) {
	c.t.Helper()
	if err := os.WriteFile(filepath.Join(c.Home(user), name), []byte(text), 0o755); err != nil {
		c.t.Fatal(err)
	}
}

// records returns the records of the user's jobs, of one job if id is not "".
func (c *cluster) records(user, id string) []ran {
	c.t.Helper()
	text, err := os.ReadFile(filepath.Join(c.Home(user), "record"))
	if os.IsNotExist(err) {
		return nil
	} else if err != nil {
		c.t.Fatal(err)
	}
	var out []ran
	for line := range strings.Lines(string(text)) {
		r := ran{}
		for _, field := range strings.Fields(line) {
			if k, v, ok := strings.Cut(field, "="); ok {
				r[k] = v
			}
		}
		if id == "" || r["job"] == id {
			out = append(out, r)
		}
	}
	return out
}

// sbatch submits the recording job and returns its id.
func (c *cluster) sbatch(user string, args ...string) string {
	c.t.Helper()
	if !slices.ContainsFunc(args, func(a string) bool { return strings.HasSuffix(a, ".sh") }) {
		args = append(args, "job.sh")
	}
	out := c.must(user, append([]string{"sbatch", "--parsable"}, args...)...)
	id, _, _ := strings.Cut(out, ";")
	return id
}

// job is scontrol's view of a job.
func (c *cluster) job(id string) map[string]string {
	c.t.Helper()
	r := c.try("root", "scontrol", "show", "job", id)
	fields := map[string]string{}
	if r.Exit != 0 {
		return fields
	}
	for line := range strings.Lines(r.Stdout) {
		line = strings.TrimSpace(line)
		if text, ok := strings.CutPrefix(line, "AdminComment="); ok {
			fields["AdminComment"] = strings.TrimSpace(text)
			continue
		}
		for _, field := range strings.Fields(line) {
			if k, v, ok := strings.Cut(field, "="); ok && fields[k] == "" {
				fields[k] = v
			}
		}
	}
	return fields
}

// waitJob waits until the job is in one of the states.
func (c *cluster) waitJob(id string, states ...string) map[string]string {
	c.t.Helper()
	var job map[string]string
	err := lab.Wait(c.ctx, switchLimit, fmt.Sprintf("job %s to be %s", id, strings.Join(states, " or ")), func() (bool, error) {
		job = c.job(id)
		return slices.Contains(states, job["JobState"]), nil
	})
	if err != nil {
		c.t.Fatalf("%v; it is %v", err, job)
	}
	return job
}

// ranOn checks that the job ran exactly once on each of the nodes, on the kernel of the profile, with the right
// environment.
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
	if r["build_id"] != k.buildID || r["release"] != k.release {
		c.t.Errorf("job %s on node %s: ran on %s (%s), profile %s is %s (%s)",
			r["job"], r["node"], r["release"], r["build_id"], profile, k.release, k.buildID)
	}
	if r["profile"] != profile || r["told_release"] != r["release"] || r["told_build_id"] != r["build_id"] {
		c.t.Errorf("job %s on node %s: its environment has %v", r["job"], r["node"], r)
	}
}

type kernel struct{ release, buildID string }

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

// nodeStatus is kernelctl's view of a node.
type nodeStatus struct {
	Name           string `json:"name"`
	Phase          string `json:"phase"`
	RunningProfile string `json:"running_profile"`
	Release        string `json:"release"`
	BootID         string `json:"boot_id"`
	Attested       bool   `json:"attested"`
	Connected      bool   `json:"connected"`
	Cause          string `json:"cause"`
	Kexecs         int    `json:"kexecs"`
}

func (c *cluster) nodes() []nodeStatus {
	c.t.Helper()
	var list struct {
		Nodes []nodeStatus `json:"nodes"`
	}
	c.kernelctl(&list, "node", "list")
	return list.Nodes
}

// settled waits until every node is idle in Slurm and proven on stock, and
// checks on the nodes themselves that they are.
func (c *cluster) settled(names ...string) {
	c.t.Helper()
	if len(names) == 0 {
		for _, n := range c.Nodes() {
			names = append(names, n.Name())
		}
	}
	if err := c.WaitIdle(c.ctx, settleLimit, names...); err != nil {
		c.t.Fatal(err)
	}
	c.wait(settleLimit, "nodes on stock", func() bool {
		for _, n := range c.nodes() {
			if slices.Contains(names, n.Name) && (n.RunningProfile != "stock" || !n.Attested || n.Phase != "steady") {
				return false
			}
		}
		return true
	})
	stock := c.kernelOf("stock")
	for _, name := range names {
		n, err := c.NodeNamed(name)
		if err != nil {
			c.t.Fatal(err)
		}
		r, err := n.Exec(c.ctx, "uname", "-r")
		if err != nil || strings.TrimSpace(r.Stdout) != stock.release {
			c.t.Errorf("node %s: runs %q, stock is %s (%v)", name, strings.TrimSpace(r.Stdout), stock.release, err)
		}
	}
}

var drainReason = regexp.MustCompile(`^kernel-broker: \S+@\d+: .+`)

// drained waits until the node is drained with a reason that names the
// product, the kernel and the cause.
func (c *cluster) drained(name string, words ...string) {
	c.t.Helper()
	reason := ""
	c.wait(settleLimit, "node "+name+" to be drained", func() bool {
		out := strings.TrimSpace(c.try("root", "sinfo", "--noheader", "--Node", "--partition=main", "--nodes="+name, "--format=%T|%E").Stdout)
		state, why, _ := strings.Cut(out, "|")
		reason = why
		// An armed node drains while its job runs. A node with a pending boot that fails is "reboot^" and gets no jobs.
		return (strings.HasPrefix(state, "drain") || state == "reboot^") &&
			!strings.HasPrefix(why, "kprof:") && !strings.HasPrefix(why, "Reboot ASAP")
	})
	if !drainReason.MatchString(reason) {
		c.t.Errorf("node %s: drained with reason %q", name, reason)
	}
	for _, word := range words {
		if !strings.Contains(reason, word) {
			c.t.Errorf("node %s: reason %q does not contain %q", name, reason, word)
		}
	}
}

// The main job: two nodes switch, the job runs on its kernel, the nodes return.
func TestMainJob(t *testing.T) {
	c := start(t, nil)
	c.prepare("alice")
	begin := time.Now()
	id := c.sbatch("alice", "-N2", "--kernel-profile=mitgcm")
	c.waitJob(id, "COMPLETED")
	t.Logf("job %s took %.1f s", id, time.Since(begin).Seconds())
	c.ranOn("alice", id, "mitgcm", 2)
	c.settled()
	plain := c.sbatch("alice", "-N2")
	c.waitJob(plain, "COMPLETED")
	c.ranOn("alice", plain, "stock", 2)
}
