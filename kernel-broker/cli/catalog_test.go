// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/catalog"
)

// invented is a catalog with two kernels.
func invented(t *testing.T) (dir, kernels string) {
	t.Helper()
	kernels = t.TempDir()
	writeKernel(t, kernels, "mitgcm", strings.Repeat("mitgcm ", 200000)) // several chunks
	writeKernel(t, kernels, "stock", "stock")
	return filepath.Join("testdata", "catalog"), kernels
}

func TestApplyAndShow(t *testing.T) {
	f := newFixture(t)
	dir, kernels := invented(t)
	f.must(0, "would create profile mitgcm with 1 version\nwould register mitgcm@1 (6.1.0-mitgcm)\nmitgcm@1: not measured\nwould upload ", "profile", "apply", dir, "--kernels", kernels, "--dry-run")
	f.must(0, "no profiles", "profile", "list")
	if f.files.count() != 0 {
		t.Error("a dry run uploaded something")
	}
	f.must(0, "uploading bzImage: 1.3 MiB done\nuploading kernel.json: 692 B done\nprofile mitgcm applied, 1 version\nmitgcm@1: not measured\n", "profile", "apply", dir, "--kernels", kernels)
	f.must(0, "kernel.json is stored already (692 B)\nprofile mitgcm unchanged, 1 version\n", "profile", "apply", dir, "--kernels", kernels)
	if _, _, stderr := f.run("profile", "apply", dir, "--kernels", kernels, "--dry-run"); stderr != "" {
		t.Errorf("a repetition changes: %s", stderr)
	}
	for _, format := range []string{"table", "json", "yaml"} {
		golden(t, "profile-list."+format, f.must(0, "", "profile", "list", "-o", format))
		golden(t, "profile-show."+format, f.must(0, "", "profile", "show", "mitgcm", "-o", format))
		golden(t, "kernel-list."+format, f.must(0, "", "kernel", "list", "-o", format))
		golden(t, "kernel-show."+format, f.must(0, "", "kernel", "show", "mitgcm@1", "-o", format))
		golden(t, "profile-check."+format, f.must(0, "", "profile", "check", "mitgcm", "-o", format))
	}
}

func TestApplyRefuses(t *testing.T) {
	f := newFixture(t)
	dir, kernels := invented(t)
	f.must(0, "", "profile", "apply", dir, "--kernels", kernels, "--profile", "mitgcm")
	f.must(3, "no profile other", "profile", "apply", dir, "--kernels", kernels, "--profile", "other")
	f.must(3, "no profile mitgmc", "profile", "apply", dir, "--kernels", kernels, "--profile", "mitgcm", "--profile", "mitgmc")
	if _, _, stderr := f.run("profile", "apply", dir, "--kernels", kernels, "--profile", "mitgcm,mitgmc"); strings.Contains(stderr, "unchanged") {
		t.Errorf("applied in part: %s", stderr)
	}
	writeKernel(t, kernels, "mitgcm", "other bytes")
	f.must(3, `kernel "mitgcm@1" exists with other content`, "profile", "apply", dir, "--kernels", kernels)
	f.must(3, `kernel "mitgcm@1" exists with other content`, "profile", "apply", dir, "--kernels", kernels, "--dry-run")
	if err := os.WriteFile(filepath.Join(kernels, "mitgcm", "bzImage"), []byte("damaged"), 0o644); err != nil {
		t.Fatal(err)
	}
	f.must(3, "is not the image of the manifest", "profile", "apply", dir, "--kernels", kernels)
	f.must(3, `kernel "mitgcm" is not built`, "profile", "apply", dir, "--kernels", t.TempDir())
	f.must(1, "no such file", "profile", "apply", filepath.Join(dir, "nowhere"), "--kernels", kernels)
}

// With --built a folder may have profiles whose kernels were not built; those are named, and an error if they are asked for.
func TestApplyBuilt(t *testing.T) {
	f := newFixture(t)
	shared, kernels := invented(t)
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(shared)); err != nil {
		t.Fatal(err)
	}
	text := "name: other\napplication: any\ndescription: Not built here\ndefault_version: 1\nversions: [{version: 1, kernel: other}]\n"
	if err := os.WriteFile(filepath.Join(dir, "profiles/other.yaml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	f.must(3, `kernel "other" is not built`, "profile", "apply", dir, "--kernels", kernels)
	f.must(0, "no profiles", "profile", "list")
	f.must(0, "has no kernels of them: other\n", "profile", "apply", dir, "--kernels", kernels, "--built")
	if out := f.must(0, "", "profile", "list"); !strings.Contains(out, "mitgcm") || strings.Contains(out, "other") {
		t.Errorf("profiles: %s", out)
	}
	f.must(3, "profiles not found", "profile", "apply", dir, "--kernels", kernels, "--built", "--profile", "other")
}

// A default that moved since the folder was written stays with --keep-default, and one that is new is taken.
func TestApplyKeepsDefault(t *testing.T) {
	f := newFixture(t)
	_, kernels := invented(t)
	writeKernel(t, kernels, "newer", "newer")
	dir := t.TempDir()
	file := func(version string) {
		t.Helper()
		text := "name: stock\napplication: any\ndescription: The distribution's own kernel\ndefault_version: " + version + "\nboot_timeout: 5m\n" +
			"versions: [{version: 1, kernel: stock}, {version: " + version + ", kernel: newer}]\n"
		if version == "1" {
			text = strings.ReplaceAll(text, ", {version: 1, kernel: newer}", "")
		}
		if err := os.WriteFile(filepath.Join(dir, "stock.yaml"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	apply := func(more ...string) []string {
		return append([]string{"profile", "apply", dir, "--kernels", kernels}, more...)
	}
	file("1")
	f.must(0, "would create profile stock", apply("--keep-default", "--dry-run")...)
	f.must(0, "", apply("--keep-default")...)
	file("2")
	f.must(0, "would change the settings of profile stock", apply("--keep-default", "--dry-run")...)
	f.must(0, "", apply("--keep-default")...)
	if out := f.must(0, "", "profile", "check", "stock"); out != "stock@2\n" {
		t.Errorf("a new default version: jobs get %s", out)
	}
	file("1")
	for _, more := range [][]string{{"--dry-run"}, nil} {
		exit, _, stderr := f.run(apply(append(more, "--keep-default")...)...)
		if exit != 0 || strings.Contains(stderr, "would") || !strings.Contains(stderr, "profile stock keeps its default version 2, its file has 1") {
			t.Errorf("%v: exit %d, %s", more, exit, stderr)
		}
		if out := f.must(0, "", "profile", "check", "stock"); out != "stock@2\n" {
			t.Errorf("%v: jobs get %s", more, out)
		}
	}
	f.must(0, "applied", apply()...)
	if out := f.must(0, "", "profile", "check", "stock"); out != "stock@1\n" {
		t.Errorf("without the flag jobs get %s", out)
	}
}

// Whether collectors see anything on a kernel is in its configuration.
func TestCheckProfiling(t *testing.T) {
	f := newFixture(t)
	kernels := t.TempDir()
	for name, config := range map[string]string{"slim": "", "typed": "CONFIG_DEBUG_INFO_BTF=y\n"} {
		dir := bootable(t, kernels, name, config)
		f.must(0, "", "kernel", "register", "--no-boot-test", "--profile", name, "--kernel", filepath.Join(dir, "bzImage"), "--manifest", filepath.Join(dir, "kernel.json"))
	}
	f.must(3, `kernel "slim@1" has no type information (BTF), so --kernel-profiling would see nothing`, "profile", "check", "slim", "--profiling")
	contains(t, "the kernel", f.must(0, "", "kernel", "show", "slim"), "Profiling:", "impossible, it has no type information (BTF)")
	for _, args := range [][]string{{"slim"}, {"typed", "--profiling"}} {
		f.must(0, "", append([]string{"profile", "check"}, args...)...)
	}
}

func TestRegister(t *testing.T) {
	f := newFixture(t)
	_, kernels := invented(t)
	bootable(t, kernels, "mitgcm")
	arguments := func(name string, more ...string) []string {
		k := filepath.Join(kernels, name)
		return append([]string{"kernel", "register", "--no-boot-test", "--profile", "mitgcm", "--kernel", filepath.Join(k, "bzImage"),
			"--manifest", filepath.Join(k, "kernel.json")}, more...)
	}
	f.must(0, "would register mitgcm@1", arguments("mitgcm", "--dry-run")...)
	for _, step := range []struct {
		more             []string
		out, words, then string
	}{
		{nil, "mitgcm@1\n", "profile mitgcm applied, 1 version", "mitgcm@1\n"},
		{nil, "mitgcm@1\n", "mitgcm@1 is this kernel already", "mitgcm@1\n"},
		{[]string{"--argument", "quiet", "--argument", "nosmt"}, "mitgcm@2\n", "applied, 2 versions", "mitgcm@1\n"},
		{[]string{"--argument", "quiet", "--argument", "nosmt", "--default"}, "mitgcm@2\n", "already", "mitgcm@2\n"},
		{[]string{"--version", "7", "--default", "--argument", "x"}, "mitgcm@7\n", "applied, 3 versions", "mitgcm@7\n"},
	} {
		if out := f.must(0, step.words, arguments("mitgcm", step.more...)...); out != step.out {
			t.Errorf("%v: %s", step.more, out)
		}
		if out := f.must(0, "", "profile", "check", "mitgcm"); out != step.then {
			t.Errorf("%v: jobs get %s", step.more, out)
		}
	}
	initrd := filepath.Join(t.TempDir(), "initrd.img")
	if err := os.WriteFile(initrd, []byte("initrd"), 0o644); err != nil {
		t.Fatal(err)
	}
	f.must(0, "uploading initrd.img: 6 B done", arguments("mitgcm", "--initrd", initrd)...)
	f.must(3, `kernel argument "root=/dev/sda"`, arguments("mitgcm", "--argument", "root=/dev/sda")...)
	f.must(3, "exists with other content", arguments("mitgcm", "--version", "1", "--argument", "other")...)
	f.must(3, "no bzImage", append(arguments("mitgcm"), "--kernel", initrd)...)
	f.must(2, "profile name", append(arguments("mitgcm"), "--profile", "A")...)
	f.must(2, `required flag(s) "kernel"`, "kernel", "register", "--profile", "mitgcm", "--manifest", "x")
}

func TestCheckReportsReason(t *testing.T) {
	f := newFixture(t)
	dir, kernels := invented(t)
	f.must(0, "", "profile", "apply", dir, "--kernels", kernels)
	for name, words := range map[string]string{
		"mitgmc":   "unknown kernel profile \"mitgmc\"; did you mean \"mitgcm\"?\n",
		"mitgcm@9": "kernel profile \"mitgcm\" has no version 9 (it has 1): not found\n",
		"Mitgcm":   "profile name \"Mitgcm\": character 'M' at position 1: invalid; did you mean \"mitgcm\"?\n",
	} {
		code, stdout, stderr := f.run("profile", "check", name)
		if code != 3 || stdout != "" || stderr != words {
			t.Errorf("check %s: exit %d, %q, %q", name, code, stdout, stderr)
		}
	}
}

func TestRetire(t *testing.T) {
	f := newFixture(t)
	dir, kernels := invented(t)
	f.must(0, "", "profile", "apply", dir, "--kernels", kernels)
	f.must(2, `version "x"`, "profile", "retire", "mitgcm@x")
	f.must(3, `did you mean "mitgcm"?`, "profile", "retire", "mitgmc")
	f.must(3, "no version 7", "profile", "retire", "mitgcm@7")
	f.must(3, "no version 7", "profile", "retire", "mitgcm@7", "--dry-run")
	f.must(0, "would retire mitgcm@1 (6.1.0-mitgcm)", "profile", "retire", "mitgcm", "--dry-run")
	f.must(0, "", "profile", "check", "mitgcm")
	f.must(0, "mitgcm retired", "profile", "retire", "mitgcm", "--reason", "no longer used")
	f.must(0, "mitgcm was retired already", "profile", "retire", "mitgcm")
	f.must(0, "mitgcm was retired already", "profile", "retire", "mitgcm", "--dry-run")
	f.must(3, `kernel "mitgcm@1" is retired since 2026-11-20T12:00:00Z: no longer used`, "profile", "check", "mitgcm@1")
	golden(t, "retired-list.table", f.must(0, "", "profile", "list"))
	golden(t, "retired-show.table", f.must(0, "", "profile", "show", "mitgcm"))
	f.must(0, "unchanged", "profile", "apply", dir, "--kernels", kernels)
	f.must(3, "is retired", "profile", "check", "mitgcm")
}

// What the call refuses its dry run refuses, with the same words and before it promises anything.
func TestDryRunRefusesWhatTheCallRefuses(t *testing.T) {
	f := newFixture(t)
	f.registerWith(kb.StockProfile, agentsConfig)
	_, kernels := invented(t)
	bootable(t, kernels, "mitgcm")
	register := []string{"kernel", "register", "--no-boot-test", "--profile", "mitgcm", "--kernel", filepath.Join(kernels, "mitgcm/bzImage"), "--manifest", filepath.Join(kernels, "mitgcm/kernel.json")}
	f.must(0, "", register...)
	f.must(0, "", append(register, "--argument", "quiet")...)
	f.must(0, "", "profile", "quarantine", "mitgcm@2", "--reason", "panics")
	for _, call := range [][]string{
		{"profile", "retire", "stock"}, {"profile", "retire", "stock@1"}, {"profile", "retire", "lammps"}, {"profile", "release", "mitgcm@1"},
		append(register, "--argument", "quiet", "--default"), append(register, "--version", "1", "--argument", "other"),
	} {
		code, _, said := f.run(append(call, "--dry-run")...)
		really, _, says := f.run(call...)
		// The call uploads first.
		if code != really || code == 0 || !strings.HasSuffix(says, said) || strings.Contains(said, "would") {
			t.Errorf("%v: exit %d, the dry run %d\n%s\nthe dry run:\n%s", call, really, code, says, said)
		}
	}
	f.must(0, "", "profile", "release", "mitgcm@2")
	f.must(3, "is the default version; make another version the default", "profile", "retire", "mitgcm@1", "--dry-run")
}

func TestQuarantineIsShownAndReleased(t *testing.T) {
	f := newFixture(t)
	dir, kernels := invented(t)
	f.must(0, "", "profile", "apply", dir, "--kernels", kernels)
	f.must(3, `"mitgcm@1" is not quarantined`, "profile", "release", "mitgcm@1")
	f.must(3, `"mitgcm@1" is not quarantined`, "profile", "release", "mitgcm@1", "--dry-run")
	ref := kb.Ref{Profile: "mitgcm", Version: 1}
	for _, id := range []string{"a", "b"} {
		if _, err := f.catalog.RecordBootFailure(t.Context(), catalog.BootFailure{ID: id, Ref: ref, Node: "n1", Cause: "n1: silent for 2m", Only: true, Threshold: 2}); err != nil {
			t.Fatal(err)
		}
	}
	f.must(3, `kernel "mitgcm@1" is quarantined since 2026-11-20T12:00:00Z: failed to boot 2 times, last: n1: silent for 2m; an administrator can release it`, "profile", "check", "mitgcm")
	golden(t, "quarantined-list.table", f.must(0, "", "profile", "list"))
	golden(t, "quarantined-show.table", f.must(0, "", "profile", "show", "mitgcm"))
	f.must(0, "would release mitgcm@1, quarantined since 2026-11-20 13:00:00 CET: failed to boot", "profile", "release", "mitgcm@1", "--dry-run")
	f.must(3, "is quarantined", "profile", "check", "mitgcm")
	f.must(0, "mitgcm@1 released from quarantine", "profile", "release", "mitgcm@1")
	f.must(0, "", "profile", "check", "mitgcm")
	f.must(2, "names no version", "profile", "release", "mitgcm")
	f.must(3, "no version 4", "profile", "release", "mitgcm@4")
}
