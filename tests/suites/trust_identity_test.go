// SPDX-License-Identifier: Apache-2.0

//go:build lab

package suites

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/credential"
	"github.com/kernelbroker/kernelbroker/tests/lab"
	"github.com/kernelbroker/kernelbroker/tests/support/mungetest"
)

// overNetwork is where the broker listens, as a login node reaches it.
const overNetwork = "10.77.0.1:7440"

const trustPolicy = `administrators:
  users: [root]
profiles:
  mitgcm:
    use:
      - users: [alice]
  quiet:
    use:
      - everybody: true
        partitions: [main]
`

// Authentication and authorization with the real daemons, attacked with what an ordinary user of the cluster can get.
func TestTrustIdentity(t *testing.T) {
	c := start(t, func(o *lab.Options) { o.Client = map[string]any{"cluster": "lab"} })
	c.prepare("alice", "bob")
	c.apply("quiet", quietProfile)
	c.must("root", "scontrol", "create", "PartitionName=side", "Nodes=n[1-2]", "State=UP")
	c.tool()
	c.policy(trustPolicy, true)
	for _, s := range []struct {
		name string
		part func(*cluster)
	}{
		{"credentials", credentials},
		{"a credential from before the broker", credentialsFromBefore},
		{"hand-made calls", handMadeCalls},
		{"root on a node", rootOnANode},
		{"a builder", aBuilder},
		{"a profile that is theirs", profileOfTheirs},
		{"by sbatch", notTheirsBySbatch},
		{"by the environment", notTheirsByEnvironment},
		{"by a plugin of their own", notTheirsByPlugin},
		{"by scontrol update", notTheirsByUpdate},
		{"a bad policy", badPolicy},
		{"the record", theRecord},
	} {
		if !t.Run(s.name, func(t *testing.T) {
			part := *c
			part.t, part.ctx = t, t.Context()
			s.part(&part)
		}) {
			t.Fatal("skipped after a failure")
		}
	}
}

// policy puts a policy in force; invalid ones must be rejected.
func (c *cluster) policy(text string, good bool) {
	c.t.Helper()
	path := filepath.Join(c.Dir(), "share/conf/kernel-broker/policy.yaml")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		c.t.Fatal(err)
	}
	if err := c.Broker().Signal(c.ctx, syscall.SIGHUP); err != nil {
		c.t.Fatal(err)
	}
	c.wait(settleLimit, "the policy to be read", func() bool {
		r := c.try("root", "kernelctl", "policy", "show", "--output=json")
		var shown struct{ Text, Problem string }
		if err := json.Unmarshal([]byte(r.Stdout), &shown); err != nil {
			c.t.Fatalf("%v: %s%s", err, r.Stdout, r.Stderr)
		}
		return good && shown.Text == text || !good && shown.Problem != ""
	})
}

// encoder makes credentials by the cluster's own munge, as a user.
type encoder struct {
	c    *cluster
	user string
	ttl  time.Duration
}

func (e encoder) Encode(_ context.Context, payload []byte, ttl time.Duration) (string, error) {
	if e.ttl != 0 {
		ttl = e.ttl
	}
	return e.c.must(e.user, "munge", "--string", string(payload), "--ttl", fmt.Sprint(int(ttl/time.Second))), nil
}

// credential makes one as a user's kernelctl does.
func (c *cluster) credential(e credential.Encoder, cluster, method string, message proto.Message) string {
	c.t.Helper()
	text, err := credential.Make(c.ctx, e, cluster, method, message)
	if err != nil {
		c.t.Fatal(err)
	}
	return text
}

var (
	checkQuiet   = &api.CheckProfileRequest{Profile: "quiet"}
	checkMitgcm  = &api.CheckProfileRequest{Profile: "mitgcm"}
	retireMitgcm = &api.RetireProfileRequest{RequestId: "1", Name: "mitgcm"}
)

const (
	checkMethod  = api.CatalogService_CheckProfile_FullMethodName
	retireMethod = api.CatalogService_RetireProfile_FullMethodName
)

// Invalid credentials authenticate no user.
func credentials(c *cluster) {
	alice := encoder{c: c, user: "alice"}
	good := c.credential(alice, "lab", checkMethod, checkQuiet)
	c.answers("bob", overNetwork, "check quiet", good, "OK", "")
	stale := c.credential(encoder{c: c, user: "alice", ttl: time.Second}, "lab", checkMethod, checkQuiet)
	for what, try := range map[string]struct{ call, credential, words string }{
		"none":                    {"check quiet", "", "nothing proves who you are"},
		"replayed":                {"check quiet", good, "used before"},
		"forged with another key": {"check quiet", c.credential(mungetest.Start(c.t).As(0), "lab", checkMethod, checkQuiet), "not genuine"},
		"garbage":                 {"check quiet", "MUNGE:AAAA:", "not genuine"},
		"of another cluster":      {"check quiet", c.credential(alice, "other", checkMethod, checkQuiet), `credential says "other"`},
		"stolen for another call": {"retire mitgcm", c.credential(encoder{c: c, user: "root"}, "lab", checkMethod, checkQuiet), "another call"},
		"stolen for another name": {"check mitgcm", c.credential(alice, "lab", checkMethod, checkQuiet), "another call"},
		"made for Slurm":          {"check quiet", c.must("alice", "munge", "--string", "hello"), "not made for Kernel Broker"},
	} {
		c.answersIn(what, "bob", overNetwork, try.call, try.credential, "Unauthenticated", try.words)
	}
	made := time.Now()
	c.wait(settleLimit, "the credential's second to be over", func() bool { return time.Since(made) > 2100*time.Millisecond })
	c.answersIn("stale", "bob", overNetwork, "check quiet", stale, "Unauthenticated", "has expired")
	// Root of any host of the cluster is root to MUNGE, but has no rights here.
	root := c.credential(encoder{c: c, user: "root"}, "lab", retireMethod, retireMitgcm)
	c.answers("bob", overNetwork, "retire mitgcm", root, "PermissionDenied", "from the broker's host")

	// kernelctl of a user does it all by itself.
	for _, user := range []string{"alice", "bob"} {
		if out := c.must(user, "kernelctl", "--broker", overNetwork, "profile", "list"); !strings.Contains(out, "mitgcm") {
			c.t.Errorf("%s: %s", user, out)
		}
	}
	c.must("alice", "kernelctl", "--broker", overNetwork, "profile", "check", "mitgcm")
	c.refused("bob", []string{`user "bob" may not use profile "mitgcm"`, "it is for user alice"}, "kernelctl", "--broker", overNetwork, "profile", "check", "mitgcm")
	c.refused("root", []string{"permission denied", "broker's host"}, "kernelctl", "--broker", overNetwork, "profile", "retire", "mitgcm")
}

// A credential used with an earlier broker is useless with the next one, although neither it nor a new munged could
// remember it.
func credentialsFromBefore(c *cluster) {
	kept := c.credential(encoder{c: c, user: "alice"}, "lab", checkMethod, checkQuiet)
	begun := time.Now()
	if err := c.Broker().Kill9(c.ctx); err != nil {
		c.t.Fatal(err)
	}
	c.wait(settleLimit, "another second", func() bool { return time.Now().Unix() > begun.Unix() })
	if err := c.Broker().Start(c.ctx); err != nil {
		c.t.Fatal(err)
	}
	c.answers("bob", overNetwork, "check quiet", kept, "Unauthenticated", "before this broker began")
	c.settled()
}

// Only Slurm's user on the broker's host can have nodes switched.
func handMadeCalls(c *cluster) {
	c.costs(0, func() {
		id := c.sbatch("bob", "--hold", "-N1")
		ensure := &api.EnsureKernelRequest{JobId: uint32(number(c, id)), Profile: "mitgcm", Nodes: []string{"n1"}}
		method := api.AllocationService_EnsureKernel_FullMethodName
		c.answers("bob", c.socket(), "ensure mitgcm "+id, "", "PermissionDenied", "for Slurm's user")
		c.answers("bob", overNetwork, "ensure mitgcm "+id, c.credential(encoder{c: c, user: "bob"}, "lab", method, ensure), "PermissionDenied", "on the broker's host")
		c.answers("bob", overNetwork, "ensure mitgcm "+id, c.credential(encoder{c: c, user: "slurm"}, "lab", method, ensure), "PermissionDenied", "on the broker's host")
		c.must("bob", "scancel", id)
	})
	for _, argv := range [][]string{
		{"kernelctl", "policy", "show"}, {"kernelctl", "policy", "test", "alice", "use", "mitgcm"},
		{"kernelctl", "profile", "retire", "mitgcm"}, {"kernelctl", "profile", "release", "mitgcm@1"},
	} {
		c.refused("bob", []string{"permission denied", `user "bob" may not`}, argv...)
	}
	if out := c.try("bob", "kernelctl", "policy", "test", "bob", "use", "mitgcm"); out.Exit != 3 || !strings.Contains(out.Stdout, "policy.yaml:6") {
		c.t.Errorf("policy test: %+v", out)
	}
}

func number(c *cluster, text string) (n int) {
	c.t.Helper()
	if _, err := fmt.Sscan(text, &n); err != nil {
		c.t.Fatal(err)
	}
	return n
}

func profileOfTheirs(c *cluster) {
	c.costs(4, func() {
		first := c.sbatch("alice", "-N1", "--nodelist=n1", "--kernel-profile=mitgcm")
		second := c.sbatch("bob", "-N1", "--nodelist=n2", "--kernel-profile=quiet")
		c.waitJob(first, "COMPLETED")
		c.waitJob(second, "COMPLETED")
		c.ranOn("alice", first, "mitgcm", 1)
		c.ranOn("bob", second, "quiet", 1)
	})
}

// The check at submit: the submit host asks, since the profile is restricted.
func notTheirsBySbatch(c *cluster) {
	for _, command := range [][]string{{"sbatch", "--wrap=true"}, {"srun", "true"}, {"salloc", "true"}} {
		argv := append([]string{command[0], "--hold", "--kernel-profile=mitgcm"}, command[1:]...)
		c.refused("bob", []string{`user "bob" may not use profile "mitgcm"`, "it is for user alice"}, argv...)
	}
	c.noJobs()
}

// profileVariables are names under which a profile is or could be passed.
var profileVariables = []string{
	"KERNEL_PROFILE", "SPANK_KERNEL_PROFILE", "SLURM_SPANK_KERNEL_PROFILE", "SBATCH_KERNEL_PROFILE",
	"_SLURM_SPANK_OPTION_kernel_profile_kernel_profile", "SLURM_SPANK__SLURM_SPANK_OPTION_kernel_profile_kernel_profile",
}

// Whatever a user puts into the environment, the job is refused or plain.
func notTheirsByEnvironment(c *cluster) {
	c.costs(0, func() {
		var taken []string
		for _, variable := range profileVariables {
			r := c.try("bob", "env", variable+"=mitgcm", "sbatch", "--parsable", "-N1", "job.sh")
			switch {
			case r.Exit == 0:
				taken = append(taken, lastLine(r.Stdout))
			case !strings.Contains(r.Stderr, `user "bob" may not use profile "mitgcm"`):
				c.t.Errorf("%s: refused for another reason: %s", variable, r.Stderr)
			}
		}
		if len(taken) == 0 {
			c.t.Error("no job was accepted: the test is void")
		}
		for _, id := range taken {
			c.waitJob(id, "COMPLETED")
			c.ranOn("bob", id, "stock", 1)
		}
	})
}

// A user's own configuration points the plugin to a broker of the user's own, so that slurmctld accepts the job. The
// real broker holds it.
func notTheirsByPlugin(c *cluster) {
	c.ownPlugin("bob")
	c.costs(0, func() {
		c.heldFor(c.unasked("bob", "-N1", "--kernel-profile=mitgcm"), `permission denied: user "bob" with account "" in partition "main" may not use profile "mitgcm": it is for user alice`)
	})
}

// ownPlugin gives a user a Slurm configuration without a check at submit.
func (c *cluster) ownPlugin(user string) {
	c.t.Helper()
	c.must(user, "sh", "-c", `sed 's,\(kernel_profile.so\).*,\1 snapshot=/nonexistent kernelctl=/bin/true,' /etc/slurm/plugstack.conf >"$HOME/plugstack.conf" &&
		{ cat /etc/slurm/slurm.conf; echo PlugStackConfig=$HOME/plugstack.conf; } >"$HOME/slurm.conf"`)
}

// unasked submits the recording job with that configuration and returns its id.
func (c *cluster) unasked(user string, args ...string) string {
	c.t.Helper()
	argv := append([]string{"sh", "-c", `SLURM_CONF="$HOME/slurm.conf" exec sbatch --parsable "$@" job.sh`, "sh"}, args...)
	r := c.try(user, argv...)
	if r.Exit != 0 {
		c.t.Fatalf("slurmctld did not accept the job: the test is void: %s", r.Stderr)
	}
	return lastLine(r.Stdout)
}

// heldFor waits until a job is held with the message in its comment, and ends it. It must not have run.
func (c *cluster) heldFor(id, words string) {
	c.t.Helper()
	c.userHeldFor("bob", id, words)
}

func (c *cluster) userHeldFor(user, id, words string) {
	c.t.Helper()
	c.wait(switchLimit, "job "+id+" to be held", func() bool {
		job := c.job(id)
		return job["JobState"] == "PENDING" && job["Priority"] == "0" && strings.Contains(job["AdminComment"], words)
	})
	if records := c.records(user, id); len(records) > 0 {
		c.t.Errorf("job %s ran: %v", id, records)
	}
	c.must(user, "scancel", id)
}

// A job accepted for one partition and moved to another is judged by its current partition.
func notTheirsByUpdate(c *cluster) {
	c.costs(0, func() {
		id := c.sbatch("bob", "--hold", "-N1", "--kernel-profile=quiet")
		// Slurm 26.05.5 takes a change of partition at some of the tries, of jobs without a profile, too.
		c.wait(settleLimit, "the job to change its partition", func() bool {
			r := c.try("bob", "scontrol", "update", "jobid="+id, "partition=side")
			if r.Exit != 0 && !strings.Contains(r.Stderr, "Resource temporarily unavailable") {
				c.t.Fatalf("a change of partition: %s%s", r.Stdout, r.Stderr)
			}
			return r.Exit == 0
		})
		c.refused("bob", nil, "scontrol", "update", "jobid="+id, "admincomment=kernel-broker: mitgcm requested")
		c.refused("bob", nil, "scontrol", "update", "jobid="+id, "userid=alice")
		if job := c.job(id); !strings.Contains(job["AdminComment"], "quiet requested") || !strings.HasPrefix(job["UserId"], "bob(") || job["Partition"] != "side" {
			c.t.Errorf("the job is now %v", job)
		}
		c.must("bob", "scontrol", "release", id)
		c.heldFor(id, `in partition "side" may not use profile "quiet": it is for everybody and partition main`)
	})
}

// An unreadable policy changes no rule, and the status shows it.
func badPolicy(c *cluster) {
	c.policy("profiles:\n  mitgcm:\n    use:\n", false)
	if r := c.try("root", "kernelctl", "health"); r.Exit == 0 || !strings.Contains(r.Stdout+r.Stderr, "a value is missing") {
		c.t.Errorf("health: %+v", r)
	}
	c.refused("bob", []string{"may not use"}, "kernelctl", "profile", "check", "mitgcm")
	c.policy(trustPolicy, true)
	// Here the broker is SlurmUser, which needs no level.
	if out := c.must("bob", "kernelctl", "health"); !strings.Contains(out, "as SlurmUser's") {
		c.t.Errorf("health: %s", out)
	}
}

// All of this is on record, and the audit log is intact.
func theRecord(c *cluster) {
	out := c.must("root", "kernelctl", "audit", "verify", "--output=json")
	var report struct {
		Records int
		Last    string
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil || report.Records < 20 {
		c.t.Fatalf("%v: %s", err, out)
	}
	c.refused("bob", nil, "kernelctl", "audit", "verify")
	paths, err := filepath.Glob(filepath.Join(c.Dir(), "var/lib/kernel-broker/audit/audit-*.log"))
	if err != nil || len(paths) == 0 {
		c.t.Fatal(paths, err)
	}
	// A broker killed with records not yet on disk continues in another file.
	var text []byte
	for _, path := range paths {
		more, err := os.ReadFile(path)
		if err != nil {
			c.t.Fatal(err)
		}
		text = append(text, more...)
	}
	for _, words := range [][]string{
		{`"by":"munge"`, `"from":"10.77.0.1:`, `"via":"CheckProfile"`, "used before", `"allowed":false`},
		{`"who":"root"`, `"by":"munge"`, `"action":"retire"`, `"allowed":false`},
		{`"who":"bob"`, `"by":"slurmctld"`, `"action":"use"`, `"object":"mitgcm"`, `"allowed":false`, `"via":"job `},
		{`"who":"alice"`, `"by":"slurmctld"`, `"action":"use"`, `"object":"mitgcm"`, `"allowed":true`},
		{`"by":"socket"`, `"via":"EnsureKernel"`, `"allowed":false`},
		{`"kind":"policy"`, "a value is missing"},
	} {
		if !hasLine(string(text), words) {
			c.t.Errorf("no record with %q", words)
		}
	}
	c.must("root", "kernelctl", "audit", "verify", "--until", report.Last)
	lines := strings.SplitAfter(string(text), "\n")
	for what, tampered := range map[string][]string{
		"changed":   {strings.Replace(string(text), `"allowed":false`, `"allowed":true`, 1)},
		"taken out": slices.Delete(slices.Clone(lines), 5, 6),
		"swapped":   slices.Concat(lines[:5], lines[6:7], lines[5:6], lines[7:]),
		"cut off":   lines[:len(lines)/2],
	} {
		if err := os.WriteFile(filepath.Join(c.Dir(), "audit-000000000001.log"), []byte(strings.Join(tampered, "")), 0o644); err != nil {
			c.t.Fatal(err)
		}
		r := c.try("root", "kernelctl", "audit", "verify", "/run/lab/audit-000000000001.log", "--until", report.Last)
		if r.Exit != 1 || !strings.Contains(r.Stderr, "is damaged") {
			c.t.Errorf("a record that was %s: exit %d, %s%s", what, r.Exit, r.Stdout, r.Stderr)
		}
	}
}

func hasLine(text string, words []string) bool {
	for line := range strings.Lines(text) {
		has := true
		for _, word := range words {
			has = has && strings.Contains(line, word)
		}
		if has {
			return true
		}
	}
	return false
}
