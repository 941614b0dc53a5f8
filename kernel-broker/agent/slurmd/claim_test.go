// SPDX-License-Identifier: Apache-2.0

package slurmd

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// noting makes a start write down whether it was one with a claim.
func noting(s *Slurmd) string {
	dir := filepath.Dir(s.PIDFile)
	s.StartCommand = []string{"/bin/sh", "-c", "if [ -e " + claimFile(s.MarkFile) + " ]; then echo claimed; else echo plain; fi >>" + dir + "/starts; exec " + dir + "/start"}
	return dir + "/starts"
}

// Only a start that the agent claims reports a boot to Slurm.
func TestClaimedStarts(t *testing.T) {
	s := fake(t, false)
	starts := noting(s)
	for i, claim := range []bool{false, true, false} {
		if err := s.Start(t.Context(), uint64(i), claim); err != nil {
			t.Fatal(err)
		}
		if err := s.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(claimFile(s.MarkFile)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("after a start the claim is still there: %v", err)
		}
	}
	if text, err := os.ReadFile(starts); err != nil || string(text) != "plain\nclaimed\nplain\n" {
		t.Errorf("%q, %v", text, err)
	}
}

// An agent that was killed before systemd read its claim leaves it behind.
func TestStaleClaim(t *testing.T) {
	for name, drop := range map[string]func(*Slurmd) error{
		"before a start":        func(s *Slurmd) error { return s.Start(t.Context(), 1, false) },
		"at the agent's start":  (*Slurmd).DropClaim,
		"there may be no claim": func(s *Slurmd) error { return errors.Join(s.DropClaim(), s.DropClaim()) },
	} {
		t.Run(name, func(t *testing.T) {
			s := fake(t, false)
			if err := os.MkdirAll(filepath.Dir(s.MarkFile), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(claimFile(s.MarkFile), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			starts := noting(s)
			if err := drop(s); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(claimFile(s.MarkFile)); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the claim is still there: %v", err)
			}
			if text, err := os.ReadFile(starts); err == nil && string(text) != "plain\n" {
				t.Errorf("%q", text)
			}
		})
	}
}

func TestOptions(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "slurmd.mark")
	path := filepath.Join(filepath.Dir(mark), "slurmd.options")
	for options, want := range map[string]string{
		"":                                    "SLURMD_OPTIONS=\"-b\"\n",
		"--conf-server ctl1 -v":               "SLURMD_OPTIONS=\"--conf-server ctl1 -v -b\"\n",
		`-f "/etc/my slurm.conf" $x \ ` + "`": `SLURMD_OPTIONS="-f \"/etc/my slurm.conf\" \$x \\ ` + "\\` -b\"\n",
	} {
		if err := os.WriteFile(claimFile(mark), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := Options(mark, path, options); err != nil {
			t.Fatal(err)
		}
		if text, err := os.ReadFile(path); err != nil || string(text) != want {
			t.Errorf("%q: %q, %v, want %q", options, text, err, want)
		}
	}
	// The claim was for one start.
	for range 2 {
		if err := Options(mark, path, ""); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("options of the start before: %v", err)
		}
	}
}

func TestInvalidOptions(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "slurmd.mark")
	if err := os.WriteFile(claimFile(mark), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(filepath.Dir(mark), "slurmd.options")
	if err := Options(mark, path, "-v\nLD_PRELOAD=x"); err == nil {
		t.Error("a line break is accepted as an option")
	}
}
