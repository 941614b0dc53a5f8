// SPDX-License-Identifier: Apache-2.0

package pgo

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestTheTrap is why this package exists: what a kernel shows is silently
// worth nothing, and what WriteFor makes of it is a profile.
func TestTheTrap(t *testing.T) {
	p := newProgram(t, cSource)
	kernel := asKernel(t, p.run("50000"))

	raw := t.TempDir()
	if err := os.WriteFile(filepath.Join(raw, "sub#a.gcda"), kernel, 0o644); err != nil {
		t.Fatal(err)
	}
	sizes, said := p.compile(ModeFull, raw)
	if sizes[".text.unlikely"] != 0 || said != "" {
		t.Errorf("the compiler takes a kernel's profile as it is: %v, said %q", sizes, said)
	}

	profile, err := Load(shown(t, p.objects, kernel))
	if err != nil {
		t.Fatal(err)
	}
	if profile, err = profile.Below(p.objects); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "profile")
	if err := profile.WriteFor(dir); err != nil {
		t.Fatal(err)
	}
	plain, _ := p.compile("", "")
	if plain[".text.unlikely"] != 0 || plain[".text.hot"] != 0 {
		t.Fatalf("without a profile: %v", plain)
	}
	for _, mode := range []Mode{ModeFull, ModeSafe} {
		sizes, said := p.compile(mode, dir)
		if sizes[".text.unlikely"] == 0 || sizes[".text.hot"] == 0 || said != "" {
			t.Errorf("%s: sections %v, said %q", mode, sizes, said)
		}
	}
}

// TestSafeModeLeavesPasses compares what the compiler says is switched on.
func TestSafeModeLeavesPasses(t *testing.T) {
	newProgram(t, cSource) // skips without the compiler
	passes := func(flags ...string) []string {
		out, err := exec.Command("gcc-12", append([]string{"-O2", "-Q", "--help=optimizers"}, flags...)...).Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.Split(string(out), "\n")
	}
	plain := passes()
	changed := map[Mode][]string{}
	for _, mode := range []Mode{ModeFull, ModeSafe} {
		flags, err := mode.Flags("/p", "/o")
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range passes(flags...) {
			if !slices.Contains(plain, line) {
				changed[mode] = append(changed[mode], strings.Fields(line)[0])
			}
		}
	}
	if !slices.Equal(changed[ModeSafe], []string{"-fbranch-probabilities"}) {
		t.Errorf("the safe mode switches on %v", changed[ModeSafe])
	}
	if !slices.Contains(changed[ModeFull], "-ftracer") {
		t.Errorf("the full mode switches on %v", changed[ModeFull])
	}
}

// TestComplaints feeds a real compiler a profile of another text, and one that
// is not there.
func TestComplaints(t *testing.T) {
	p := newProgram(t, cSource)
	profile, err := Load(shown(t, p.objects, p.run("50000")))
	if err != nil {
		t.Fatal(err)
	}
	if profile, err = profile.Below(p.objects); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "profile")
	if err := profile.WriteFor(dir); err != nil {
		t.Fatal(err)
	}
	other := strings.ReplaceAll(cSource, "int sum = 0;", "int sum = 0;\n\n\tif (getenv(\"A\"))\n\t\treturn 1;")
	if err := os.WriteFile(p.source, []byte(other), 0o644); err != nil {
		t.Fatal(err)
	}
	_, said := p.compile(ModeFull, dir)
	complaints, _, err := ReadLog(strings.NewReader(said))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{p.source + ": never", p.source + ": often"}
	if !slices.Equal(complaints.Mismatched, want) || len(complaints.Missing) != 0 ||
		!slices.Equal(complaints.Moved, []string{p.source + ": main"}) {
		t.Errorf("complaints %+v, want %v, of:\n%s", complaints, want, said)
	}
	_, said = p.compile(ModeSafe, t.TempDir())
	complaints, _, err = ReadLog(strings.NewReader(said))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(complaints.Missing, []string{"sub/a.o"}) || len(complaints.Mismatched) != 0 {
		t.Errorf("complaints %+v of:\n%s", complaints, said)
	}
}
