// SPDX-License-Identifier: Apache-2.0

package slurm

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

func accountLine(id, account string) string { return fmt.Sprintf("%-12s%-1100s\n", id, account) }

func TestParseAccount(t *testing.T) {
	for _, c := range []struct {
		what, out, want string
		err             error
	}{
		{"one", accountLine("20", "climate"), "climate", nil},
		{"none", accountLine("20", "(null)"), "", nil},
		{"empty", accountLine("20", ""), "", nil},
		{"among others", accountLine("19", "ocean") + accountLine("20", "climate") + accountLine("21", "ice"), "climate", nil},
		{"tasks that wait", accountLine("20", "climate") + accountLine("20", "climate"), "climate", nil},
		{"with separators", accountLine("20", "a|b c"), "a|b c", nil},
		{"another with blanks before it", accountLine("20", " climate"), " climate", nil},
		{"a line break", accountLine("20", "x\n20          climate"), "", kb.ErrDenied},
		{"a line break of another kind", accountLine("20", "x\nclimate"), "", kb.ErrDenied},
		// slurmdbd lets coordinators create such accounts, and the next job's id is predictable: split by lines, this
		// would be the account climate, twice.
		{"a line break that forges a record", accountLine("20", "climate\n20          climate"), "", kb.ErrDenied},
		{"a line break at its end", accountLine("20", "climate\n"), "", kb.ErrDenied},
		{"another job's line break", accountLine("19", "x\n20          ocean") + accountLine("20", "climate"), "climate", nil},
		{"a tab at its end", accountLine("20", "climate\t"), "climate\t", nil},
		{"lines that do not agree", accountLine("20", "climate") + accountLine("20", "ocean"), "", kb.ErrDenied},
		{"cut off", accountLine("20", "climate")[:1000], "", kb.ErrUnavailable},
		{"shifted", "x" + accountLine("20", "climate"), "", kb.ErrUnavailable},
		{"another job's", accountLine("21", "climate"), "", kb.ErrUnavailable},
		{"nothing", "", "", kb.ErrUnavailable},
		{"rubbish", "x\n", "", kb.ErrUnavailable},
	} {
		got, err := parseAccount(c.out, 20)
		if got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: %q, %v", c.what, got, err)
		}
	}
}

// associations is scontrol's output for a user of two accounts, one of them in one partition only, in a cluster whose
// coordinator forges names.
const associations = `Current Association Manager state

Association Records

ClusterName=lab Account=root UserName= Partition= Priority=0 ID=1
    SharesRaw/Norm/Level/Factor=1/18446744073709551616.00/1/0.00
    ParentAccount= Lft=1 DefAssoc=No
ClusterName=lab Account=climate UserName= Partition= Priority=0 ID=8
    ParentAccount=root(1) Lft=2 DefAssoc=No
ClusterName=lab Account=ocean UserName=bob(20002) Partition= Priority=0 ID=10
    ParentAccount= Lft=27 DefAssoc=No
ClusterName=lab Account= climate UserName=bob(20002) Partition= Priority=0 ID=11
ClusterName=lab Account=climate
 UserName=bob(20002) Partition= Priority=0 ID=21
ClusterName=lab Account=ice UserName=bob(20002) Partition=main Priority=0 ID=22
ClusterName=lab Account=ice UserName=bob(20002) Partition= Priority=0 ID=23
ClusterName=lab Account=snow UserName=eve(120002) Partition= Priority=0 ID=24
ClusterName=lab Account=x UserName=bob(20002) UserName= Partition= Priority=0 ID=25
`

func TestAssociations(t *testing.T) {
	client, log := fake(t, "cat <<'EOF'\n"+associations+"EOF", "exit 9")
	for uid, want := range map[uint32][]string{20002: {"ocean", " climate", "ice"}, 20003: {}} {
		if got, err := client.AccountsOf(t.Context(), "bob", uid); err != nil || got == nil || !slices.Equal(got, want) {
			t.Errorf("uid %d: %q, %v", uid, got, err)
		}
	}
	names := []string{"climate", "ocean", "root", "x", "Climate"}
	if got, err := client.LacksAccounts(t.Context(), names); err != nil || !slices.Equal(got, []string{"ocean", "x", "Climate"}) {
		t.Errorf("lacks %q, %v", got, err)
	}
	want := strings.Repeat("scontrol <show> <assoc_mgr> <flags=assoc> <users=bob>\n", 2) + "scontrol <show> <assoc_mgr> <flags=assoc> <users=root>\n"
	if got := log(); got != want {
		t.Errorf("ran %q", got)
	}
	if got, err := client.AccountsOf(t.Context(), "bob,alice", 20002); !errors.Is(err, kb.ErrUnavailable) {
		t.Errorf("%q, %v", got, err)
	}
}

// No records means unknown, not "no account".
func TestNoAssociations(t *testing.T) {
	for _, script := range []string{
		"true", "echo 'Current Association Manager state'", "printf 'ClusterName=lab\nAccount=ocean\n'",
		"echo 'ClusterName=lab Account=ocean UserName=bob(20002)'",
	} {
		client, _ := fake(t, script, "")
		if got, err := client.AccountsOf(t.Context(), "bob", 20002); !errors.Is(err, kb.ErrUnavailable) || got != nil {
			t.Errorf("%s: %q, %v", script, got, err)
		}
		if got, err := client.LacksAccounts(t.Context(), []string{"ocean"}); !errors.Is(err, kb.ErrUnavailable) || got != nil {
			t.Errorf("%s: %q, %v", script, got, err)
		}
	}
	client, _ := fake(t, "echo 'slurm_load_assoc_mgr_info error: Unable to contact slurm controller' >&2; exit 1", "")
	if got, err := client.AccountsOf(t.Context(), "bob", 20002); err == nil || got != nil {
		t.Errorf("a slurmctld that is away: %q", got)
	}
}

func FuzzParseAssociations(f *testing.F) {
	f.Add(associations)
	f.Fuzz(func(t *testing.T, out string) {
		for _, a := range parseAssociations(out) {
			if strings.Contains(a.account, "\n") || !strings.Contains(out, " Account="+a.account+" UserName="+a.owner+" Partition=") {
				t.Errorf("%q has %q", out, a)
			}
		}
	})
}

func FuzzParseAccount(f *testing.F) {
	f.Add(accountLine("20", "climate"))
	f.Fuzz(func(t *testing.T, out string) {
		account, err := parseAccount(out, 20)
		if err == nil && (strings.Contains(account, "\n") || account != "" && !strings.Contains(out, account)) {
			t.Errorf("%q has account %q", out, account)
		}
	})
}
