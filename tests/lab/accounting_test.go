// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"slices"
	"strings"
	"testing"
)

func TestAccountingOfSlurmConf(t *testing.T) {
	for _, with := range []bool{false, true} {
		c := conf(t, Options{Nodes: 1, Memory: 512, CPUs: 1, Slurm: SlurmOptions{Accounting: with}}, ModeRoot)
		want := map[string]string{"AccountingStorageType": "accounting_storage/none"}
		if with {
			want = map[string]string{
				"AccountingStorageType": "accounting_storage/slurmdbd", "AccountingStorageHost": "ctl",
				"AccountingStorageEnforce": "associations,limits",
			}
		}
		for key, value := range c {
			if strings.HasPrefix(key, "AccountingStorage") && want[key] != value {
				t.Errorf("with accounting %t: %s=%s", with, key, value)
			}
		}
		for key, value := range want {
			if c[key] != value {
				t.Errorf("with accounting %t: %s=%q, want %q", with, key, c[key], value)
			}
		}
	}
}

// The broker can only have a user of its own if Slurm knows administrators besides SlurmUser.
func TestBrokerUser(t *testing.T) {
	accounting := Options{Slurm: SlurmOptions{Accounting: true}}
	for _, c := range []struct {
		o    Options
		m    Mode
		want string
	}{
		{Options{}, ModeRoot, "slurm"}, {accounting, ModeRoot, "kernel-broker"}, {accounting, ModeSubuid, "kernel-broker"},
		{accounting, ModeSingle, "alice"},
	} {
		if got := brokerUser(c.o, c.m); got != c.want {
			t.Errorf("%+v in %s mode: %s, want %s", c.o.Slurm, c.m, got, c.want)
		}
		if _, err := findAccount(accounts(c.m, 1000), c.want); err != nil {
			t.Error(err)
		}
	}
}

func TestConfined(t *testing.T) {
	argv := confined("kernel-broker", ModeRoot, "/x", "-y")
	for _, word := range []string{"--no-new-privs", "--bounding-set=-all", "--clear-groups", "umask 0027; exec \"$@\""} {
		if !slices.Contains(argv, word) {
			t.Errorf("no %s in %q", word, argv)
		}
	}
	if tail := argv[len(argv)-2:]; !slices.Equal(tail, []string{"/x", "-y"}) {
		t.Errorf("ends with %q", tail)
	}
	if argv := confined("alice", ModeSingle, "/x"); slices.Contains(argv, "--reuid") {
		t.Errorf("without root the user cannot change: %q", argv)
	}
}

func TestSlurmdbdConf(t *testing.T) {
	text := SlurmdbdConf("ctl", "slurm")
	if !strings.Contains(text, "\nSlurmUser=slurm\n") || strings.Contains(text, "StoragePass") {
		t.Error(text)
	}
}
