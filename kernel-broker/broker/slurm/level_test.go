// SPDX-License-Identifier: Apache-2.0

package slurm

import (
	"errors"
	"strings"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// slurmctldSays is a scontrol that prints SlurmUser and the user's record, if any.
func slurmctldSays(record string) string {
	return `case "$2" in
config) printf 'SlurmctldPort           = 6817\nSlurmUser               = slurm(64030)\n' ;;
assoc_mgr) printf '\nCurrent Association Manager state\n\nUser Records\n\n` + record + `' ;;
esac`
}

func TestLevel(t *testing.T) {
	const account = ` DefAccount=root DefWckey= AdminLevel=`
	for name, c := range map[string]struct {
		uid         uint32
		record      string
		want, words string
	}{
		"root":                          {0, "", "root", ""},
		"SlurmUser":                     {64030, "", "SlurmUser", ""},
		"an administrator":              {64031, `UserName=kernel-broker(64031)` + account + `Administrator\n`, "Administrator", ""},
		"an operator":                   {64031, `UserName=kernel-broker(64031)` + account + `Operator\n`, "", "has AdminLevel Operator"},
		"no level":                      {64031, `UserName=kernel-broker(64031)` + account + `None\n`, "", "sacctmgr modify user kernel-broker set adminlevel=Admin"},
		"unknown to Slurm":              {64031, "", "", "sacctmgr add user kernel-broker"},
		"another uid of the name":       {64031, `UserName=kernel-broker(64032)` + account + `Administrator\n`, "", "does not know"},
		"another name of the uid":       {64031, `UserName=broker(64031)` + account + `Administrator\n`, "", "does not know"},
		"a uid with the same ending":    {4030, "", "", "does not know"},
		"an account named like a level": {64031, `UserName=kernel-broker(64031) DefAccount=AdminLevel=Administrator DefWckey= AdminLevel=None\n`, "", "has AdminLevel None"},
	} {
		t.Run(name, func(t *testing.T) {
			client, log := fake(t, slurmctldSays(c.record), "exit 9")
			got, err := client.Level(t.Context(), "kernel-broker", c.uid)
			switch {
			case c.words == "" && (err != nil || got != c.want):
				t.Errorf("%q, %v", got, err)
			case c.words != "" && (got != "" || !errors.Is(err, kb.ErrDenied) || !strings.Contains(err.Error(), c.words)):
				t.Errorf("%q, %v; want %q", got, err, c.words)
			}
			if c.record != "" && !strings.HasSuffix(log(), "scontrol <show> <assoc_mgr> <flags=users> <users=kernel-broker>\n") {
				t.Errorf("ran %q", log())
			}
		})
	}
}

// An unanswered query denies nothing.
func TestUnknownLevel(t *testing.T) {
	for _, script := range []string{"exit 1", "true", `[ "$2" = config ] && echo 'SlurmUser = slurm(64030)'`} {
		client, _ := fake(t, script, "")
		if got, err := client.Level(t.Context(), "kernel-broker", 64031); err == nil || errors.Is(err, kb.ErrDenied) || got != "" {
			t.Errorf("%s: %q, %v", script, got, err)
		}
	}
}

func FuzzParseLevel(f *testing.F) {
	f.Add("\nUserName=a(1) DefAccount=x DefWckey= AdminLevel=Operator\n", "a(1)")
	f.Fuzz(func(t *testing.T, out, user string) {
		if level := parseLevel(out, user); level != "" && !strings.Contains(out, "UserName="+user+" ") {
			t.Errorf("%q has level %q for %q", out, level, user)
		}
	})
}

func TestPrivateData(t *testing.T) {
	for value, want := range map[string]bool{"none": false, "jobs": true, "accounts,jobs,usage": true, "cloud,events": false, "all": true} {
		client, _ := fake(t, `printf 'PrivateData             = `+value+`\n'`, "exit 9")
		if got, err := client.PrivateJobs(t.Context()); err != nil || got != want {
			t.Errorf("%s: %v, %v", value, got, err)
		}
	}
	client, _ := fake(t, "true", "exit 9")
	if _, err := client.PrivateJobs(t.Context()); !errors.Is(err, kb.ErrUnavailable) {
		t.Errorf("nothing printed: %v", err)
	}
}

// Slurm shows other users' jobs to operators too, but refuses their commands.
func TestOperates(t *testing.T) {
	record := func(level string) string {
		return `UserName=olga(7) DefAccount=root DefWckey= AdminLevel=` + level + `\n`
	}
	for name, c := range map[string]struct {
		uid    uint32
		record string
		want   bool
	}{
		"root":                    {0, "", true},
		"SlurmUser":               {64030, "", true},
		"an operator":             {7, record("Operator"), true},
		"an administrator":        {7, record("Administrator"), true},
		"no level":                {7, record("None"), false},
		"unknown to Slurm":        {7, "", false},
		"another uid of the name": {8, record("Operator"), false},
	} {
		client, _ := fake(t, slurmctldSays(c.record), "exit 9")
		if got, err := client.Operates(t.Context(), "olga", c.uid); err != nil || got != c.want {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	client, _ := fake(t, "exit 1", "exit 9")
	if got, err := client.Operates(t.Context(), "olga", 7); err == nil || got {
		t.Errorf("slurmctld away: %v, %v", got, err)
	}
}
