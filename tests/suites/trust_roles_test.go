// SPDX-License-Identifier: Apache-2.0

//go:build lab

package suites

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// buildersPolicy lets bob publish the profile quiet and nothing else.
const buildersPolicy = trustPolicy + `    publish:
      - users: [bob]
`

// A builder may publish the profiles in the policy from the permitted hosts, and has no administrator's rights.
func aBuilder(c *cluster) {
	c.policy(buildersPolicy, true)
	at := "/run/lab/catalog/kernels/mitgcm/"
	register := func(profile string, more ...string) []string {
		return append([]string{"kernelctl", "kernel", "register", "--no-boot-test", "--profile", profile,
			"--kernel", at + "bzImage", "--manifest", at + "kernel.json", "--argument", "loglevel=5"}, more...)
	}
	const notHis = `user "bob" may not publish profile `
	before := c.must("root", "kernelctl", "profile", "list", "--output", "json")
	for profile, words := range map[string][]string{
		"mitgcm": {notHis + `"mitgcm"`, "only builders and administrators"},
		"stock":  {notHis + `"stock"`, "only administrators publish stock"},
		"own":    {notHis + `"own"`, "only builders and administrators"},
	} {
		argv := register(profile)
		if profile == "stock" {
			argv = append(argv, "--replace-stock")
		}
		c.refused("bob", append(words, "permission denied"), argv...)
	}
	c.refused("alice", []string{"permission denied", `user "alice" may not`}, register("quiet")...)
	c.refused("bob", []string{"permission denied", "kernels are published from the broker's host"},
		append(register("quiet"), "--broker", overNetwork)...)
	for _, argv := range [][]string{
		{"profile", "quarantine", "quiet@1", "--reason", "x"}, {"profile", "release", "quiet@1"}, {"profile", "retire", "quiet@1"},
		{"profile", "promote", "mitgcm@1", "--reason", "x"}, {"node", "token", "n1"}, {"node", "revoke", "n1"},
		{"artifact", "gc"}, {"artifact", "list"}, {"authority", "rotate"}, {"policy", "show"},
	} {
		c.refused("bob", []string{"permission denied", `user "bob" may not`}, append([]string{"kernelctl"}, argv...)...)
	}
	if after := c.must("root", "kernelctl", "profile", "list", "--output", "json"); after != before {
		c.t.Errorf("the catalog changed:\n%s", after)
	}
	// Builders' permitted actions succeed and are recorded with user and reason.
	if out := c.must("bob", register("quiet")...); !strings.Contains(out, "quiet@3") {
		c.t.Errorf("registered %q", out)
	}
	c.must("bob", "kernelctl", "profile", "promote", "quiet@3", "--reason", "a week on two nodes")
	c.must("bob", "kernelctl", "profile", "rollback", "quiet", "--reason", "it was a trial")
	c.must("root", "kernelctl", "profile", "quarantine", "quiet@3", "--reason", "loses data on NFS")
	c.refused("alice", []string{"quiet@3", "loses data on NFS"}, "kernelctl", "profile", "check", "quiet@3")
	c.must("root", "kernelctl", "profile", "release", "quiet@3", "--reason", "it was the disk")
	c.must("alice", "kernelctl", "profile", "check", "quiet@3")
	c.must("root", "kernelctl", "profile", "retire", "quiet@3", "--reason", "its time is over")
	c.refused("alice", []string{"quiet@3", "its time is over"}, "kernelctl", "profile", "check", "quiet@3")
	var shown struct {
		DefaultVersion int `json:"default_version"`
		History        []struct{ At, Who, What, Reason string }
	}
	c.kernelctl(&shown, "profile", "show", "quiet")
	var told []string
	for _, h := range shown.History {
		if h.At == "" {
			c.t.Errorf("a change without its time: %+v", h)
		}
		told = append(told, h.Who+" "+h.What+" "+h.Reason)
	}
	for _, want := range []string{
		"bob (uid 20002) registered", "bob (uid 20002) promoted a week on two nodes", "bob (uid 20002) rolled-back it was a trial",
		"root (uid 0) quarantined loses data on NFS", "root (uid 0) released it was the disk", "root (uid 0) retired its time is over",
	} {
		if !strings.Contains(strings.Join(told, "\n"), want) {
			c.t.Errorf("the history of quiet has no %q:\n%s", want, strings.Join(told, "\n"))
		}
	}
	if shown.DefaultVersion != 2 {
		c.t.Errorf("the default version is %d", shown.DefaultVersion)
	}
	c.isDenied("only builders and administrators", "bob", "publish", "mitgcm")
	if out := c.must("root", "kernelctl", "policy", "test", "bob", "publish", "quiet"); !strings.Contains(out, "policy.yaml:") {
		c.t.Errorf("policy test: %s", out)
	}
	c.policy(trustPolicy, true)
}

// toolOnNode is this program on a node, with its trust anchors.
const (
	toolOnNode  = "/etc/kernel-broker/suite-tool"
	trustOnNode = "/etc/kernel-broker/suite-ca.pem"
)

// callFromNode has root of a node call the broker, as any user to the MUNGE of
// that node.
func (c *cluster) callFromNode(node int, uid int, call string) answered {
	c.t.Helper()
	text, err := json.Marshal(caller{Address: overNetwork, Call: call, As: &uid, CA: trustOnNode})
	if err != nil {
		c.t.Fatal(err)
	}
	r, err := c.Node(node).Shell(c.ctx, callVariable+"='"+string(text)+"' "+toolOnNode)
	if err != nil {
		c.t.Fatal(err)
	}
	var a answered
	if err := json.Unmarshal([]byte(r.Stdout), &a); err != nil {
		c.t.Fatalf("%s: %v: exit %d: %s%s", call, err, r.Exit, r.Stdout, r.Stderr)
	}
	return a
}

// Root on a node has the cluster's MUNGE key and can impersonate any user to the broker; so administrators, builders and
// slurmctld have no special rights from there. Ordinary users' rights remain: nothing prevents that.
func rootOnANode(c *cluster) {
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		c.t.Fatal(err)
	}
	files := map[string][]byte{toolOnNode: self, trustOnNode: []byte(c.must("root", "cat", "/var/lib/kernel-broker/ca.pem") + "\n")}
	for path, text := range files {
		if err := os.WriteFile(c.Node(1).Conf(filepath.Base(path)), text, 0o755); err != nil {
			c.t.Fatal(err)
		}
	}
	c.policy(buildersPolicy, true)
	uid := func(user string) int { return number(c, c.must("root", "id", "-u", user)) }
	c.costs(0, func() {
		id := c.sbatch("bob", "--hold", "-N1")
		for _, try := range []struct {
			as          int
			call, words string
		}{
			{0, "retire mitgcm", "have their role from the broker's host, and this one came from 10.77.0.11"},
			{0, "policy", "have their role from the broker's host, and this one came from 10.77.0.11"},
			{0, "token n2", "have their role from the broker's host, and this one came from 10.77.0.11"},
			{0, "revoke n2", "have their role from the broker's host, and this one came from 10.77.0.11"},
			{0, "ensure mitgcm " + id, "on the broker's host"},
			{uid("slurm"), "ensure mitgcm " + id, "on the broker's host"},
			{uid("slurm"), "release " + id, "on the broker's host"},
			{uid("slurm"), "retire mitgcm", "only administrators may"},
			{uid("bob"), "promote quiet 1", "kernels are published from the broker's host"},
			{uid("bob"), "check mitgcm", `user "bob" may not use profile "mitgcm"`},
		} {
			if a := c.callFromNode(1, try.as, try.call); a.Code != "PermissionDenied" || !strings.Contains(a.Message, try.words) {
				c.t.Errorf("%s as uid %s: %s: %s, want PermissionDenied with %q", try.call, strconv.Itoa(try.as), a.Code, a.Message, try.words)
			}
		}
		if a := c.callFromNode(1, uid("alice"), "check mitgcm"); a.Code != "OK" {
			c.t.Errorf("as alice, who may use the profile: the other refusals are void: %+v", a)
		}
		c.must("bob", "scancel", id)
	})
	c.policy(trustPolicy, true)
	for path := range files {
		if err := os.Remove(c.Node(1).Conf(filepath.Base(path))); err != nil {
			c.t.Fatal(err)
		}
	}
}
