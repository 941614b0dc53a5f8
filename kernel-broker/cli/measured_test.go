// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/catalog"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/verdict"
	"github.com/kernelbroker/kernelbroker/kernel-broker/report/kernelreport"
)

// aReport writes what the factory reports of the kernel in a folder: it needs so much where slim needs 100, stock 125 and
// the program 300 instructions of its own.
func aReport(t *testing.T, kernel, path string, needs ...float64) {
	t.Helper()
	image, err := catalog.DescribeFile(filepath.Join(kernel, "bzImage"), catalog.MaxImage)
	if err != nil {
		t.Fatal(err)
	}
	run := verdict.Run{Workload: "write8", Seed: 7, Size: 3}
	facts := kernelreport.Facts{Subject: "mitgcm", Application: "MITgcm", Current: "slim", Slim: "slim", Stock: "stock", Made: "2026-11-20T12:00:00Z",
		Applications: []verdict.Application{{Name: "MITgcm", Test: run, Kernel: "mitgcm"}},
		Checks:       []verdict.CheckRun{{Workload: "write8", Kernel: "mitgcm", Passed: true}}, Rules: verdict.DefaultRules()}
	for name, values := range map[string][]float64{"mitgcm": needs, "slim": {100}, "stock": {125}} {
		k := kernelreport.Kernel{Kernel: verdict.Kernel{Name: name}}
		if name == "mitgcm" {
			k.Provenance.ImageDigest = image.Digest
		}
		facts.Kernels = append(facts.Kernels, k)
		for metric, of := range map[string][]float64{verdict.KernelWeighed: values, verdict.UserWeighed: {300}} {
			facts.Samples = append(facts.Samples, verdict.Sample{Workload: "write8", Metric: metric, Unit: "instructions/operation", Kernel: name,
				Exact: len(of) == 1, Values: of, Seed: 7, Size: 3, Operations: 3})
		}
	}
	made, err := kernelreport.Make(facts)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := made.WriteJSON(&text); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

// linesOf a text, each with its white space made one blank.
func linesOf(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return strings.Join(lines, "\n")
}

func contains(t *testing.T, what, text string, wanted ...string) {
	t.Helper()
	for _, want := range wanted {
		if !strings.Contains(linesOf(text), want) {
			t.Errorf("%s: no %q in\n%s", what, want, text)
		}
	}
}

// What the factory measured goes from its report to everybody who lists the profiles.
func TestRegisterMeasured(t *testing.T) {
	f := newFixture(t)
	dir := bootable(t, t.TempDir(), "mitgcm")
	report := filepath.Join(t.TempDir(), "r.json")
	aReport(t, dir, report, 74, 75, 76)
	register := func(more ...string) []string {
		return append([]string{"kernel", "register", "--no-boot-test", "--profile", "mitgcm", "--kernel", filepath.Join(dir, "bzImage"),
			"--manifest", filepath.Join(dir, "kernel.json")}, more...)
	}
	const said = "benefit: kernel instructions (strings weighed) -25.0 % on write8 (by more than the spread"
	f.must(0, "would register mitgcm@1 (6.1.0-mitgcm)\nmitgcm@1: "+said, register("--report", report, "--dry-run")...)
	f.must(0, "no profiles", "profile", "list", "-o", "wide")
	f.must(0, "mitgcm@1: not measured\n", register("--argument", "quiet", "--dry-run")...)
	_, _, stderr := f.run(register("--report", report)...)
	contains(t, "registered", stderr, "mitgcm@1: "+said,
		"against slim -O2: kernel -25.0 % (-26.1 to -23.9); whole -6.2 % (-6.5 to -6.0) of the workload; kernel share 25.0 % (25.0 to 25.0) of the workload's instructions",
		"against stock: kernel -40.0 % (-40.9 to -39.1); whole -11.8 % (-12.0 to -11.5) of the workload; kernel share 29.4 % (29.4 to 29.4) of the workload's instructions")
	f.must(0, "mitgcm@1: "+said, register("--report", report)...) // again
	f.must(0, "mitgcm@2: not measured\n", register("--argument", "quiet", "--default")...)
	f.must(0, "mitgcm@2: not measured\n", register("--argument", "quiet")...)
	contains(t, "list, with another default", f.must(0, "", "profile", "list", "-o", "wide"), "mitgcm 2 1,2 available not measured - mitgcm")
	f.must(0, "", "profile", "promote", "mitgcm@1", "--reason", "better")
	contains(t, "list", f.must(0, "", "profile", "list", "-o", "wide"), "NAME DEFAULT VERSIONS STATE GAIN OF THE WHOLE APPLICATION DESCRIPTION",
		"mitgcm 1 1,2 available -40.0 % (-40.9 to -39.1) -11.8 % (-12.0 to -11.5) of the workload mitgcm Kernel for mitgcm")
	contains(t, "kernels", f.must(0, "", "kernel", "list", "-o", "wide"), "mitgcm@1 available -40.0 % (-40.9 to -39.1) - 6.1.0-mitgcm", "mitgcm@2 available not measured - 6.1.0-mitgcm")
	show := f.must(0, "", "profile", "show", "mitgcm", "-o", "wide")
	contains(t, "show", show, "mitgcm@1, "+said, "AGAINST KERNEL KERNEL SHARE WHOLE",
		"slim -O2 -25.0 % (-26.1 to -23.9) 25.0 % (25.0 to 25.0) of the workload's instructions -6.2 % (-6.5 to -6.0) of the workload")
	contains(t, "kernel", f.must(0, "", "kernel", "show", "mitgcm@1", "-o", "wide"), "Verdict: "+said, "Workload: write8", "Against stock: kernel -40.0 %")
	if shown := f.must(0, "", "kernel", "show", "mitgcm@1"); strings.Count(shown, "Verdict:") != 1 {
		t.Errorf("the verdict is there twice:\n%s", shown)
	}
	contains(t, "the other kernel", f.must(0, "", "kernel", "show", "mitgcm@2"), "Verdict: not measured")

	var listed struct {
		Profiles []struct {
			Versions []struct {
				Measured *struct {
					Outcome, Workload, Metric string
					ToSlim                    struct {
						Kernel, Whole struct {
							Percent float64
							Low     float64 `json:"low_percent"`
							High    float64 `json:"high_percent"`
						}
						Source string `json:"share_source"`
					} `json:"to_slim"`
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(f.must(0, "", "profile", "list", "-o", "json")), &listed); err != nil {
		t.Fatal(err)
	}
	versions := listed.Profiles[0].Versions
	m := versions[0].Measured
	if m == nil || m.Outcome != "benefit" || m.Workload != "write8" || m.Metric != "kernel_weighed_instructions" || m.ToSlim.Kernel.Percent != -25 ||
		m.ToSlim.Kernel.Low != -26.074 || m.ToSlim.Whole.Percent != -6.25 || m.ToSlim.Source != "workload" || versions[1].Measured != nil {
		t.Errorf("%+v, %+v", m, versions)
	}
}

// A kernel without a benefit can be registered, and says so wherever it is shown.
func TestRegisterNoBenefit(t *testing.T) {
	f := newFixture(t)
	dir := bootable(t, t.TempDir(), "mitgcm")
	aReport(t, dir, filepath.Join(dir, "report.json"), 102)
	register := []string{"kernel", "register", "--no-boot-test", "--profile", "mitgcm", "--kernel", filepath.Join(dir, "bzImage"), "--driver", "ext4"}
	const said = "no benefit: kernel instructions (strings weighed) +2.0 % on write8 (exact counts, and more)"
	// The report beside the kernel needs no option.
	f.must(0, "mitgcm@1: "+said+"\n  against slim -O2: kernel +2.0 % (+1.9 to +2.1); whole +0.5 % (+0.5 to +0.5) of the workload", register...)
	contains(t, "list", f.must(0, "", "profile", "list", "-o", "wide"), "mitgcm 1 1 available none - mitgcm")
	contains(t, "show", f.must(0, "", "profile", "show", "mitgcm", "-o", "wide"), "mitgcm@1, "+said, "stock -18.4 % (-18.5 to -18.3)")
	if out := f.must(0, "", "profile", "check", "mitgcm"); out != "mitgcm@1\n" {
		t.Errorf("jobs get %s", out)
	}
}

// A report that is of another kernel, or none, is refused before anything is booted or stored.
func TestRegisterRefusesReports(t *testing.T) {
	f := newFixture(t)
	f.try = meanwhile(func(string, string) { t.Error("it was booted") })
	t.Setenv("TMPDIR", t.TempDir())
	dir, other := bootable(t, t.TempDir(), "mitgcm"), writeKernel(t, t.TempDir(), "mitgcm", "other bytes")
	place := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(place, name)
		if text != "" {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return path
	}
	anothers := file("other.json", "")
	aReport(t, other, anothers, 75)
	fifo := filepath.Join(place, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, words := range map[string]string{
		anothers:                        `other.json: report: it is about kernel "mitgcm" with image "sha256:`,
		file("torn.json", `{"format":`): "torn.json: report: unexpected end of JSON input",
		file("none.json", `{"format":1,"facts":{},"figures":{}}`): "none.json: report: it has no verdict",
		fifo: "fifo is no regular file",
	} {
		f.must(3, words, "kernel", "register", "--profile", "mitgcm", "--kernel", filepath.Join(dir, "bzImage"), "--report", path)
	}
	f.must(1, "no such file", "kernel", "register", "--profile", "mitgcm", "--kernel", filepath.Join(dir, "bzImage"), "--report", filepath.Join(place, "missing"))
	if n := f.files.count(); n > 0 {
		t.Errorf("%d files are stored", n)
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

// profile apply takes the report that lies beside a kernel.
func TestApplyMeasured(t *testing.T) {
	f := newFixture(t)
	dir, kernels := invented(t)
	apply := []string{"profile", "apply", dir, "--kernels", kernels}
	_, _, stderr := f.run(append(apply, "--dry-run")...)
	contains(t, "a dry run", stderr, "would register mitgcm@1 (6.1.0-mitgcm)\nmitgcm@1: not measured", "stock@1: not measured")
	beside := filepath.Join(kernels, "mitgcm", "report.json")
	aReport(t, writeKernel(t, t.TempDir(), "mitgcm", "other bytes"), beside, 75)
	f.must(3, `kernel "mitgcm@1": `+beside+": report: it is about", apply...)
	aReport(t, filepath.Join(kernels, "mitgcm"), beside, 75)
	f.must(0, "would register mitgcm@1 (6.1.0-mitgcm)\nmitgcm@1: benefit: kernel instructions (strings weighed) -25.0 %", append(apply, "--dry-run")...)
	f.must(0, "profile mitgcm applied, 1 version\nmitgcm@1: benefit: kernel instructions (strings weighed) -25.0 %", apply...)
	f.must(0, "profile mitgcm unchanged, 1 version\nmitgcm@1: benefit: kernel instructions (strings weighed) -25.0 %", apply...)
	if _, _, stderr := f.run(append(apply, "--dry-run")...); stderr != "" {
		t.Errorf("a repetition changes: %s", stderr)
	}
	v := f.version(t, mitgcm1)
	if m := v.Measured; m == nil || m.Outcome != kb.OutcomeBenefit || len(v.Documents) != 2 || m.Report != v.Documents[1].Digest {
		t.Errorf("%+v, %+v", v.Measured, v.Documents)
	}
	contains(t, "list", f.must(0, "", "profile", "list", "-o", "wide"), "stock 1 1 available - - any", "mitgcm 1 1 available -40.0 % (-40.1 to -39.9)")
}

// What was registered before it was measured gets its measurement later, by either command.
func TestMeasuredLater(t *testing.T) {
	f := newFixture(t)
	dir, kernels := invented(t)
	apply := []string{"profile", "apply", dir, "--kernels", kernels}
	f.must(0, "mitgcm@1: not measured", apply...)
	kernel := filepath.Join(kernels, "mitgcm")
	aReport(t, kernel, filepath.Join(kernel, "report.json"), 75)
	f.must(0, "would add to mitgcm@1 what was measured\nmitgcm@1: benefit: kernel instructions (strings weighed) -25.0 %", append(apply, "--dry-run")...)
	contains(t, "a dry run", f.must(0, "", "profile", "list", "-o", "wide"), "mitgcm 1 1 available not measured")
	f.must(0, "report.json: ", apply...)
	f.must(0, "profile mitgcm unchanged, 1 version\nmitgcm@1: benefit", apply...)
	contains(t, "show", f.must(0, "", "profile", "show", "mitgcm", "-o", "wide"), "changed 1", "measured: benefit")

	brought := bootable(t, t.TempDir(), "own")
	register := []string{"kernel", "register", "--no-boot-test", "--profile", "own", "--kernel", filepath.Join(brought, "bzImage"), "--driver", "ext4"}
	f.must(0, "own@1: not measured", register...)
	report := filepath.Join(t.TempDir(), "r.json")
	aReport(t, brought, report, 80)
	measured := slices.Concat(register, []string{"--report", report})
	f.must(0, "own@1 is this kernel already\nwould add what was measured of it\nown@1: benefit", append(measured, "--dry-run")...)
	contains(t, "a dry run", f.must(0, "", "profile", "list", "-o", "wide"), "own 1 1 available not measured")
	f.must(0, "own@1: benefit: kernel instructions (strings weighed) -20.0 %", measured...)
	// A measurement stays as it is.
	aReport(t, brought, report, 60)
	f.must(0, "own@1 is this kernel already\nown@1: benefit: kernel instructions (strings weighed) -20.0 %", measured...)
	v := f.version(t, kb.Ref{Profile: "own", Version: 1})
	if len(v.Documents) != 3 || v.Measured.ToSlim.Kernel.Percent != -20 {
		t.Errorf("%+v, %+v", v.Documents, v.Measured)
	}
}

func TestGainCells(t *testing.T) {
	gain := func(percent float64) *kb.Gain {
		return &kb.Gain{Kernel: kb.Estimate{Percent: percent, Low: percent - 1, High: percent + 1}}
	}
	unsure := gain(-5)
	unsure.Chance, unsure.Unequal = true, true
	job := gain(-5)
	job.Share, job.Whole, job.Source, job.Runs = &kb.Estimate{Percent: 10, Low: 10, High: 10}, &kb.Estimate{Percent: -0.5, Low: -0.6, High: -0.4}, kb.ShareOfRuns, []uint64{3, 8}
	for want, m := range map[string]*kb.Measurement{
		"not measured|": nil,
		"none|":         {Outcome: kb.OutcomeNoBenefit, ToStock: gain(-5)},
		"refused|":      {Outcome: kb.OutcomeRefused, ToStock: gain(-5)},
		"benefit|":      {Outcome: kb.OutcomeBenefit},
		"-5.0 % (-6.0 to -4.0), measured on 6.1.192-2|kernel share not known": {Outcome: kb.OutcomeBenefit, ToStock: gain(-5), MeasuredOn: "6.1.192-2"},
		"-5.0 % (-6.0 to -4.0)|kernel share not known":                        {Outcome: kb.OutcomeBenefit, ToSlim: gain(-1), ToStock: gain(-5)},
		"-1.0 % (-2.0 to 0) to slim -O2|kernel share not known":               {Outcome: kb.OutcomeBenefit, ToSlim: gain(-1)},
		"-5.0 % (-6.0 to -4.0) ? - NOT AS EQUALS|kernel share not known":      {Outcome: kb.OutcomeBenefit, ToStock: unsure},
		"-5.0 % (-6.0 to -4.0)|-0.5 % (-0.6 to -0.4) of the job's time":       {Outcome: kb.OutcomeBenefit, ToStock: job},
	} {
		kernel, whole := gainCells(m)
		if got := kernel + "|" + whole; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if text := shareText(job); text != "10.0 % (10.0 to 10.0) of the job's CPU time, run 3, 8" {
		t.Error(text)
	}
}
