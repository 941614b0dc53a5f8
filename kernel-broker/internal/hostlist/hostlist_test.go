// SPDX-License-Identifier: Apache-2.0

package hostlist

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

var samples = map[string]string{
	"n1":                  "n1",
	"n1,n2,n3":            "n1 n2 n3",
	"n[1-3]":              "n1 n2 n3",
	"n[1-3,7],gpu[08-10]": "n1 n2 n3 n7 gpu08 gpu09 gpu10",
	"gpu[01-02,05]":       "gpu01 gpu02 gpu05",
	"r[1-2]n[3-4]":        "r1n3 r1n4 r2n3 r2n4",
	"a.b-c_d[001]":        "a.b-c_d001",
	"n[98-101]":           "n98 n99 n100 n101",
	"n[0098-0101]":        "n0098 n0099 n0100 n0101",
	"n1,n[1-2]":           "n1 n2",
	"n[0]":                "n0",
}

func TestExpand(t *testing.T) {
	for list, want := range samples {
		names, err := Expand(list)
		if err != nil || strings.Join(names, " ") != want {
			t.Errorf("Expand(%q) = %v, %v, want %s", list, names, err, want)
		}
	}
	// Slurm writes no such list, but it is unambiguous.
	names, err := Expand("gpu[1-2]-ib")
	if err != nil || strings.Join(names, " ") != "gpu1-ib gpu2-ib" {
		t.Errorf("with a suffix: %v, %v", names, err)
	}
}

func TestCompress(t *testing.T) {
	for names, want := range map[string]string{
		"":                        "",
		"n1":                      "n1",
		"n3 n1 n2 n2":             "n[1-3]",
		"n1 n2 n3 n7 gpu08 gpu10": "gpu[08,10],n[1-3,7]",
		"n98 n99 n100 n101":       "n[98-101]",
		"n099 n100 n1000":         "n[099-100,1000]",
		"n98 n99 n100 n0101":      "n[98-100,0101]",
		"n1 n01 n2 n02":           "n[1-2,01-02]",
		"login n login1":          "login,login1,n",
		"n1234567890 n1":          "n1,n1234567890",
		"r1-gpu r2-gpu":           "r1-gpu,r2-gpu",
	} {
		got := Compress(strings.Fields(names))
		if got != want {
			t.Errorf("Compress(%s) = %s, want %s", names, got, want)
		}
		if got == "" {
			continue
		}
		back, err := Expand(got)
		seen := map[string]bool{}
		for _, name := range strings.Fields(names) {
			seen[name] = true
		}
		if err != nil || len(back) != len(seen) {
			t.Errorf("Expand(%s) = %v, %v", got, back, err)
		}
	}
}

// Slurm itself is the judge where it is installed.
func TestExpandAsSlurmDoes(t *testing.T) {
	scontrol, err := exec.LookPath("scontrol")
	if err != nil {
		t.Skip("scontrol is not installed")
	}
	conf := filepath.Join(t.TempDir(), "slurm.conf")
	if err := os.WriteFile(conf, []byte("ClusterName=test\nSlurmctldHost=localhost\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for list := range samples {
		cmd := exec.Command(scontrol, "show", "hostnames", list)
		cmd.Env = []string{"SLURM_CONF=" + conf}
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		names, err := Expand(list)
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		var slurm []string
		for _, name := range strings.Fields(string(out)) {
			if !seen[name] {
				seen[name] = true
				slurm = append(slurm, name)
			}
		}
		if strings.Join(names, " ") != strings.Join(slurm, " ") {
			t.Errorf("Expand(%q) = %v, Slurm expands it to %v", list, names, slurm)
		}
	}
}

func TestExpandRefuses(t *testing.T) {
	for _, list := range []string{
		"", ",", "n1,", ",n1", "n[", "n]", "n[1", "n1]", "n[]", "n[1-]", "n[-1]", "n[1,,2]", "n[3-1]", "n[a-b]", "n[1-2-3]",
		"(null)", "n 1", "n;reboot", "-n", "n[[1]]", "a[1]b[1]c[1]", "n[1-99999999999]", "n[0-65536]", "a[1-300]b[1-300]",
		"n[1-65536],m", strings.Repeat("n", 65), strings.Repeat("n1,", 50000) + "n1",
	} {
		if names, err := Expand(list); !errors.Is(err, kb.ErrInvalid) {
			t.Errorf("Expand(%.40q) = %d names, %v", list, len(names), err)
		}
	}
	if names, err := Expand("n[1-65536]"); err != nil || len(names) != MaxNames {
		t.Errorf("the largest list: %d names, %v", len(names), err)
	}
}

func FuzzExpand(f *testing.F) {
	for list := range samples {
		f.Add(list)
	}
	f.Add("n[0-65535]")
	f.Add("a[1-9]b[1-9]c[1-9]")
	f.Fuzz(func(t *testing.T, list string) {
		names, err := Expand(list)
		if err != nil {
			return
		}
		if len(names) == 0 || len(names) > MaxNames {
			t.Fatalf("%d names", len(names))
		}
		seen := map[string]bool{}
		for _, name := range names {
			if err := kb.ValidateNodeName(name); err != nil || seen[name] {
				t.Fatalf("name %q: %v", name, err)
			}
			seen[name] = true
		}
		// An expanded list parses to itself.
		if len(names) < 100 {
			again, err := Expand(strings.Join(names, ","))
			if err != nil || fmt.Sprint(again) != fmt.Sprint(names) {
				t.Fatalf("again: %v, %v", again, err)
			}
		}
	})
}

func TestNatural(t *testing.T) {
	got := strings.Fields("1 2 10 gpu01 gpu1 n n2 n02 n10 n10a n10b n11 r1n9 r1n10 r2n1")
	slices.Reverse(got)
	if slices.SortFunc(got, Natural); strings.Join(got, " ") != "1 2 10 gpu1 gpu01 n n2 n02 n10 n10a n10b n11 r1n9 r1n10 r2n1" {
		t.Errorf("sorted: %v", got)
	}
}

func TestNaturalIsAnOrder(t *testing.T) {
	names := []string{"a", "a1", "a1-ib", "a2", "a02", "a10", "a10b2", "a10b10", "b", "b1"}
	rapid.Check(t, func(t *rapid.T) {
		mixed := rapid.Permutation(names).Draw(t, "names")
		slices.SortFunc(mixed, Natural)
		if !slices.Equal(mixed, names) {
			t.Fatalf("sorted: %v", mixed)
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[a-b0-2]{0,5}`)
		a, b, c := name.Draw(t, "a"), name.Draw(t, "b"), name.Draw(t, "c")
		if Natural(a, b) != -Natural(b, a) || (Natural(a, b) == 0) != (a == b) || Natural(a, b) < 0 && Natural(b, c) < 0 && Natural(a, c) >= 0 {
			t.Fatalf("%q, %q and %q have no order", a, b, c)
		}
	})
}
