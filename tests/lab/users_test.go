// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"strings"
	"testing"
)

func TestHasRange(t *testing.T) {
	for _, c := range []struct {
		text string
		want bool
	}{
		{"me:100000:65536\n", true},
		{"1000:100000:65536\n", true},
		{"other:1:65536\nme:100000:70000\n", true},
		{"me:100000:1000\n", false},
		{"other:100000:65536\n", false},
		{"me:100000\nme:x:y\n", false},
		{"", false},
	} {
		if got := hasRange([]byte(c.text), "me", "1000"); got != c.want {
			t.Errorf("hasRange(%q) = %v", c.text, got)
		}
	}
}

func TestAccounts(t *testing.T) {
	for _, m := range []Mode{ModeRoot, ModeSubuid} {
		ids := map[int]bool{}
		for _, a := range accounts(m, 1000) {
			if ids[a.ID] {
				t.Errorf("%s mode: id %d twice", m, a.ID)
			}
			if a.ID >= wantedIDs {
				t.Errorf("%s mode: id %d of %s is outside of a subuid range", m, a.ID, a.Name)
			}
			ids[a.ID] = true
		}
		for _, name := range []string{"root", "slurm", "munge", "alice", "bob"} {
			if _, err := findAccount(accounts(m, 1000), name); err != nil {
				t.Errorf("%s mode: %v", m, err)
			}
		}
	}
	single := accounts(ModeSingle, 1234)
	if a, err := findAccount(single, "alice"); err != nil || a.ID != 1234 {
		t.Errorf("single mode: alice is %+v, %v", a, err)
	}
	if _, err := findAccount(single, "bob"); err == nil || !strings.Contains(err.Error(), "alice") {
		t.Errorf("single mode: bob: %v; want an error that names who exists", err)
	}
}

func TestPasswdAndGroup(t *testing.T) {
	list := accounts(ModeRoot, 0)
	if want := "alice:x:20001:20001:alice:/home/alice:/bin/bash\n"; !strings.Contains(passwdFile(list), want) {
		t.Errorf("no %q in\n%s", want, passwdFile(list))
	}
	if want := "nogroup:x:65534:\n"; !strings.Contains(groupFile(list), want) {
		t.Errorf("no %q in\n%s", want, groupFile(list))
	}
}
