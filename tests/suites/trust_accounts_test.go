// SPDX-License-Identifier: Apache-2.0

//go:build lab

package suites

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/kernelbroker/kernelbroker/tests/lab"
)

// alice has the account climate beside her default one, and bob coordinates
// ocean.
const accountsPolicy = `administrators:
  users: [root]
profiles:
  mitgcm:
    use:
      - accounts: [climate]
  quiet:
    use:
      - accounts: [users]
`

// Profiles restricted to an account, with a real slurmdbd, and the broker as its own user with administrator rights in
// Slurm.
func TestTrustAccounts(t *testing.T) {
	c := start(t, func(o *lab.Options) {
		o.Slurm.Accounting, o.Slurm.REST = true, true
		o.Client = map[string]any{"cluster": "lab"}
	})
	c.prepare("alice", "bob")
	c.apply("quiet", quietProfile)
	c.tool()
	for _, user := range []string{"alice", "bob"} {
		c.ownPlugin(user)
	}
	c.sacctmgr("root", "add", "account", "climate")
	c.sacctmgr("root", "add", "account", "ocean")
	c.sacctmgr("root", "add", "user", "alice", "account=climate")
	c.sacctmgr("root", "add", "user", "bob", "account=ocean")
	c.sacctmgr("root", "add", "coordinator", "account=ocean", "names=bob")
	c.policy(accountsPolicy, true)
	for _, s := range []struct {
		name string
		part func(*cluster)
	}{
		{"least privilege", leastPrivilege},
		{"levels of administrators", adminLevels},
		{"another account of theirs", anotherAccount},
		{"an account that is claimed", claimedAccount},
		{"an account changed after the submit", changedAccount},
		{"by REST", notTheirsByREST},
		{"a coordinator", coordinator},
		{"a coordinator's names", coordinatorsNames},
		{"changes by sacctmgr", changesBySacctmgr},
		{"accounts of theirs", accountsOfTheirs},
		{"slurmdbd away", slurmdbdAway},
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

func (c *cluster) sacctmgr(user string, words ...string) {
	c.t.Helper()
	c.must(user, append([]string{"sacctmgr", "--immediate"}, words...)...)
}

// isDenied checks the answer of policy test.
func (c *cluster) isDenied(words string, question ...string) {
	c.t.Helper()
	r := c.try("root", append([]string{"kernelctl", "policy", "test"}, question...)...)
	if r.Exit != 3 || !strings.Contains(r.Stdout, words) {
		c.t.Errorf("policy test %s: exit %d, %s%s; want %q", question, r.Exit, r.Stdout, r.Stderr, words)
	}
}

// refusedEarly has the broker refuse a job at submit. The plugin waits two seconds and then lets the job in, so the
// submit is repeated: speed is not tested.
func (c *cluster) refusedEarly(user string, words []string, args ...string) {
	c.t.Helper()
	argv := append(append([]string{"sbatch", "--hold", "--parsable"}, args...), "--wrap=true")
	r := c.answered(user, argv...)
	if r.Exit == 0 {
		c.t.Fatalf("sbatch %q: accepted", args)
	}
	for _, word := range words {
		if !strings.Contains(r.Stderr, word) {
			c.t.Errorf("sbatch %q: %q is not in its answer:\n%s", args, word, r.Stderr)
		}
	}
}

// notFor is the broker's message for a job that may not use a profile.
func notFor(user, account, profile, whom string) string {
	return fmt.Sprintf("permission denied: user %q with account %q in partition \"main\" may not use profile %q: it is for %s", user, account, profile, whom)
}

// A job has the account that it has when it gets its nodes, and keeps it from
// then on. The default one counts like any other.
func accountsOfTheirs(c *cluster) {
	c.costs(4, func() {
		changed := c.sbatch("alice", "--hold", "-N1", "--nodelist=n1", "--account=users", "--kernel-profile=mitgcm", "record.sh")
		c.must("alice", "scontrol", "update", "jobid="+changed, "account=climate")
		c.must("alice", "scontrol", "release", changed)
		unnamed := c.sbatch("alice", "-N1", "--nodelist=n2", "--kernel-profile=quiet", "record.sh")
		c.wait(switchLimit, "the switch", func() bool {
			return strings.Contains(c.job(changed)["AdminComment"], "nodes boot mitgcm@1")
		})
		c.refused("alice", nil, "scontrol", "update", "jobid="+changed, "account=users")
		for id, want := range map[string]struct{ profile, account string }{changed: {"mitgcm", "climate"}, unnamed: {"quiet", "users"}} {
			job := c.waitJob(id, "COMPLETED")
			c.ranOn("alice", id, want.profile, 1)
			if job["Account"] != want.account {
				c.t.Errorf("job %s ran with account %q, want %q", id, job["Account"], want.account)
			}
		}
	})
}

// At submit the broker knows the user but not the job, and answers with the condition; the job's own account counts.
func anotherAccount(c *cluster) {
	if r := c.try("alice", "kernelctl", "profile", "check", "mitgcm"); r.Exit != 0 || !strings.Contains(r.Stdout+r.Stderr, "for a job with account climate") {
		c.t.Errorf("profile check: %+v", r)
	}
	c.costs(0, func() {
		// One at a time: both are the first in the queue.
		for account, args := range map[string][]string{"users": {}, "climate": {"--account=climate"}} {
			profile, whom := "mitgcm", "account climate"
			if account == "climate" {
				profile, whom = "quiet", "account users"
			}
			id := c.sbatch("alice", append(args, "-N1", "--kernel-profile="+profile)...)
			c.userHeldFor("alice", id, notFor("alice", account, profile, whom))
		}
	})
}

// Slurm refuses the account, and the broker the profile, in every way to request it.
func claimedAccount(c *cluster) {
	const his = `user "bob" may not use profile "mitgcm": it is for account climate, and Slurm has the accounts`
	c.refused("bob", []string{"Invalid account"}, "sbatch", "--hold", "--account=climate", "--wrap=true")
	for _, account := range []string{"climate", "ocean", "users"} {
		c.refusedEarly("bob", []string{his, `"ocean"`, `"users"`}, "--account="+account, "--kernel-profile=mitgcm")
	}
	c.refused("bob", []string{"Invalid account"}, "sh", "-c", `SLURM_CONF="$HOME/slurm.conf" sbatch --hold --account=climate --kernel-profile=mitgcm --wrap=true`)
	c.noJobs()
	c.costs(0, func() {
		c.heldFor(c.unasked("bob", "-N1", "--account=ocean", "--kernel-profile=mitgcm"), notFor("bob", "ocean", "mitgcm", "account climate"))
	})
	// Direct calls: the users' only call about a profile, and the only call with an account as an argument.
	c.answers("bob", c.socket(), "check mitgcm", "", "PermissionDenied", his)
	c.answers("bob", overNetwork, "check mitgcm", c.credential(encoder{c: c, user: "bob"}, "lab", checkMethod, checkMitgcm), "PermissionDenied", his)
	c.isDenied("for this user", "bob", "use", "mitgcm", "--account", "climate", "--partition", "main")
	if r := c.try("bob", "kernelctl", "policy", "test", "bob", "use", "mitgcm", "--account", "climate"); r.Exit != 3 {
		c.t.Errorf("policy test by bob: %+v", r)
	}
	c.must("alice", "kernelctl", "policy", "test", "alice", "use", "mitgcm", "--account", "climate")
}

// The account at submit may no longer be valid when the job starts.
func changedAccount(c *cluster) {
	c.costs(0, func() {
		id := c.sbatch("alice", "--hold", "-N1", "--account=climate", "--kernel-profile=mitgcm")
		c.must("alice", "scontrol", "update", "jobid="+id, "account=users")
		c.refused("alice", nil, "scontrol", "update", "jobid="+id, "account=ocean")
		c.must("alice", "scontrol", "release", id)
		c.userHeldFor("alice", id, notFor("alice", "users", "mitgcm", "account climate"))
	})
}

// A coordinator of an account is an ordinary user to the broker. What Slurm permits to coordinators changes no kernel.
func coordinator(c *cluster) {
	c.refused("bob", nil, "sacctmgr", "--immediate", "add", "user", "bob", "account=climate")
	c.refused("bob", nil, "sacctmgr", "--immediate", "add", "coordinator", "account=climate", "names=bob")
	c.refused("bob", nil, "sacctmgr", "--immediate", "modify", "user", "bob", "set", "adminlevel=Operator")
	for _, argv := range [][]string{
		{"kernelctl", "policy", "show"}, {"kernelctl", "profile", "retire", "mitgcm"}, {"kernelctl", "policy", "test", "alice", "use", "mitgcm"},
	} {
		c.refused("bob", []string{"permission denied", `user "bob" may not`}, argv...)
	}
	c.sacctmgr("bob", "add", "user", "alice", "account=ocean")
	c.costs(0, func() {
		// The account's job, whose coordinator may change what its user may change.
		id := c.sbatch("alice", "--hold", "-N1", "--account=ocean", "--kernel-profile=mitgcm")
		for _, what := range []string{"account=climate", "reboot=no", "admincomment=kernel-broker: quiet requested", "userid=bob"} {
			c.refused("bob", nil, "scontrol", "update", "jobid="+id, what)
		}
		c.must("alice", "scontrol", "release", id)
		c.userHeldFor("alice", id, notFor("alice", "ocean", "mitgcm", "account climate"))
	})
	c.sacctmgr("bob", "remove", "user", "alice", "where", "account=ocean")
}

// slurmdbd lets a coordinator create accounts of any free name below their own. None passes for another one, not even
// with the next job's id in it, which would forge a second record in squeue's output.
func coordinatorsNames(c *cluster) {
	for what, name := range map[string]func(next int) string{
		"a blank before it":        func(int) string { return " climate" },
		"a tab behind it":          func(int) string { return "climate\t" },
		"a line break behind it":   func(int) string { return "climate\n" },
		"a forged record":          func(next int) string { return fmt.Sprintf("climate\n%-12dclimate", next) },
		"part of a list of rights": func(int) string { return "climate or users" },
	} {
		c.t.Run(what, func(t *testing.T) {
			part := *c
			part.t, part.ctx = t, t.Context()
			part.passesFor(name)
		})
	}
	c.policy(accountsPolicy+"# with all of them\n", true) // which makes slurmctld ask again
	c.refused("bob", []string{"it is for account climate"}, "kernelctl", "profile", "check", "mitgcm")
}

func (c *cluster) passesFor(name func(next int) string) {
	c.t.Helper()
	id := c.sbatch("bob", "--hold", "-N1")
	guess := number(c, id) + 1
	account := name(guess)
	c.must("bob", "scancel", id)
	made := c.try("bob", "sacctmgr", "--immediate", "add", "account", "name="+account, "parent=ocean")
	if made.Exit != 0 && account != strings.TrimSpace(account) {
		// From 25.05 on sacctmgr takes blanks at both ends away, and what is left is not bob's.
		c.refused("bob", nil, "sacctmgr", "--immediate", "add", "user", "bob", "account="+account)
		return
	}
	if made.Exit != 0 {
		c.t.Fatalf("account %q: %s%s", account, made.Stdout, made.Stderr)
	}
	c.sacctmgr("bob", "add", "user", "bob", "account="+account)
	c.costs(0, func() {
		next := c.unasked("bob", "-N1", "--account="+account, "--kernel-profile=mitgcm")
		if number(c, next) != guess {
			c.t.Fatalf("job %s should be %d: the test is void", next, guess)
		}
		c.heldFor(next, "permission denied")
	})
}

// Slurm's answer counts for jobs at once; the check at submit follows within a minute, or with the policy.
func changesBySacctmgr(c *cluster) {
	c.refused("bob", []string{"it is for account climate"}, "kernelctl", "profile", "check", "mitgcm")
	c.sacctmgr("root", "add", "user", "bob", "account=climate")
	id := c.unasked("bob", "--hold", "-N1", "--account=climate", "--kernel-profile=mitgcm")
	c.wait(settleLimit, "the broker to know bob's new account", func() bool {
		return c.try("bob", "kernelctl", "profile", "check", "mitgcm").Exit == 0
	})
	// slurmdbd removes no account with a job that it knows.
	c.must("bob", "scancel", id)
	c.wait(settleLimit, "slurmdbd to know that the job is gone", func() bool {
		return c.try("root", "sacctmgr", "--immediate", "remove", "user", "bob", "where", "account=climate").Exit == 0
	})
	c.wait(settleLimit, "slurmctld to know that the account is gone", func() bool {
		r := c.try("bob", "sbatch", "--hold", "--parsable", "--account=climate", "--wrap=true")
		if r.Exit == 0 {
			c.must("bob", "scancel", lastLine(r.Stdout))
		}
		return strings.Contains(r.Stderr, "Invalid account")
	})
	c.wait(settleLimit, "the broker to know that it is gone", func() bool {
		return c.try("bob", "kernelctl", "profile", "check", "mitgcm").Exit != 0
	})
}

// Without slurmdbd, slurmctld and the broker continue with the last known accounts; sacctmgr refuses changes. Without
// slurmctld accounts are unknown, and the check at submit answers with the condition.
func slurmdbdAway(c *cluster) {
	if err := c.Slurmdbd().Kill9(c.ctx); err != nil {
		c.t.Fatal(err)
	}
	asBefore := func(text string) {
		c.policy(text, true) // which makes slurmctld ask again
		c.refused("bob", []string{"it is for account climate, and Slurm has the accounts"}, "kernelctl", "profile", "check", "mitgcm")
		c.refused("bob", []string{"Invalid account"}, "sbatch", "--hold", "--account=climate", "--wrap=true")
		c.must("alice", "kernelctl", "profile", "check", "mitgcm")
	}
	c.refused("root", nil, "sacctmgr", "--immediate", "add", "user", "bob", "account=climate")
	asBefore(accountsPolicy)
	c.costs(2, func() {
		c.heldFor(c.unasked("bob", "-N1", "--account=ocean", "--kernel-profile=mitgcm"), notFor("bob", "ocean", "mitgcm", "account climate"))
		id := c.sbatch("alice", "-N1", "--account=climate", "--kernel-profile=mitgcm", "record.sh")
		c.waitJob(id, "COMPLETED")
		c.ranOn("alice", id, "mitgcm", 1)
	})
	// Now slurmctld has it from its own state alone.
	if err := c.RestartSlurmctld(c.ctx, syscall.SIGTERM); err != nil {
		c.t.Fatal(err)
	}
	asBefore(accountsPolicy + "# slurmctld was restarted\n")

	if err := c.StopSlurmctld(c.ctx, syscall.SIGTERM); err != nil {
		c.t.Fatal(err)
	}
	c.policy(accountsPolicy+"# slurmctld is away\n", true)
	if r := c.try("bob", "kernelctl", "profile", "check", "mitgcm"); r.Exit != 0 || !strings.Contains(r.Stdout+r.Stderr, "for a job with account climate") {
		c.t.Errorf("without slurmctld: %+v", r)
	}
	if log := c.brokerLog(); !strings.Contains(log, "accounts not known, answered without them") {
		c.t.Error("the broker's log does not say that accounts are not known")
	}
	if err := c.StartSlurmctld(c.ctx); err != nil {
		c.t.Fatal(err)
	}
	if err := c.Slurmdbd().Start(c.ctx); err != nil {
		c.t.Fatal(err)
	}
	c.sacctmgr("root", "add", "user", "bob", "account=climate")
	c.wait(settleLimit, "the change to arrive", func() bool {
		return c.try("bob", "sbatch", "--hold", "--account=climate", "--wrap=true").Exit == 0
	})
	c.must("bob", "scancel", "--user=bob")
	c.policy("profiles:\n  mitgcm:\n    use:\n      - accounts: [climate, nowhere]\n", true)
	c.wait(settleLimit, "a warning of an account that a coordinator could make", func() bool {
		return strings.Contains(c.brokerLog(), "policy names accounts that Slurm does not have") && strings.Contains(c.brokerLog(), "accounts=[nowhere]")
	})
	c.settled()
}

func (c *cluster) brokerLog() string {
	c.t.Helper()
	text, err := os.ReadFile(c.FrontLog("kernel-broker/broker.log"))
	if err != nil {
		c.t.Fatal(err)
	}
	return string(text)
}
