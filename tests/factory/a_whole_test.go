// SPDX-License-Identifier: Apache-2.0

//go:build lab

package factory

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/graph"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/kconfig"
	"github.com/kernelbroker/kernelbroker/kernel-broker/report/kernelreport"
)

// steps of a kernel that is slimmed and compiled with a profile: all there are.
var steps = []string{
	"source", "traced-config", "traced", "trace", "slim", "config", "plain", "instrumented-config", "instrumented", "profile",
	"optimised-config", "optimised", "fit", "stock", "boot", "measure-stock-test", "measure-plain-test", "measure-optimised-test",
	"measure-optimised-train", "trace-optimised", "verdict", "report", "publish",
}

func TestWholePipeline(t *testing.T) {
	_, made := whole(t)
	for _, name := range steps {
		if step, has := made.status.Step(name); !has || step.State != graph.Done {
			t.Errorf("step %s is there: %t, %s", name, has, step.State)
		}
	}
	if len(made.status.Steps) != len(steps) || made.status.State != graph.Done {
		t.Errorf("the build is %s:\n%s", made.status.State, say(made.status))
	}
	// It has no mitigations, and no site allows that unless it says so.
	if made.Outcome != kb.OutcomeRefused || !strings.Contains(made.Reason, "unequal mitigations") {
		t.Errorf("verdict %q: %s", made.Outcome, made.Reason)
	}
	if !strings.HasSuffix(made.Release, "-tiny") {
		t.Errorf("release %q", made.Release)
	}
}

func TestSecondRunDoesNothing(t *testing.T) {
	p, first := whole(t)
	again := p.candidate(making("tiny")...)
	if !reflect.DeepEqual(again, first.Candidate) {
		t.Errorf("the second run gives\n%+v\nthe first gave\n%+v", again, first.Candidate)
	}
	status := p.status("tiny")
	for _, step := range status.Steps {
		if !step.Cached && step.Name != "publish" {
			t.Errorf("it did step %s again", step.Name)
		}
	}
	if list := p.must("kernel", "candidates", "tiny").out; strings.Count(list, first.ID) != 1 {
		t.Errorf("candidates:\n%s", list)
	}
}

func TestReport(t *testing.T) {
	_, made := whole(t)
	page := read(t, made.Page())
	for _, words := range []string{"<!DOCTYPE html>", made.BuildID, "tiny", "write of 8 bytes", "unequal mitigations"} {
		if !bytes.Contains(bytes.ToLower(page), bytes.ToLower([]byte(words))) {
			t.Errorf("%q is not on the page", words)
		}
	}
	file, err := os.Open(made.JSON())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }() // only read from
	var read kernelreport.Report
	err = json.NewDecoder(file).Decode(&read)
	if err != nil {
		t.Fatal(err)
	}
	if read.Figures.Verdict == nil || read.Figures.Verdict.Outcome != made.Outcome {
		t.Errorf("verdict in the report: %+v", read.Figures.Verdict)
	}
}

// Slimming has two options to try. The guest's first program is a script, which
// no trace of the workload knows.
func TestSlimmingByRealRuns(t *testing.T) {
	_, made := whole(t)
	var outcome struct {
		Gone, Stayed []struct{ Symbol, Reason string }
	}
	decode(t, string(made.file("slim", "slim.json")), &outcome)
	var gone []string
	for _, decision := range outcome.Gone {
		gone = append(gone, decision.Symbol)
	}
	if strings.Join(gone, " ") != "FHANDLE" {
		t.Errorf("gone: %v", gone)
	}
	why := ""
	for _, decision := range outcome.Stayed {
		if decision.Symbol == "BINFMT_SCRIPT" {
			why = decision.Reason
		}
	}
	if !strings.HasPrefix(why, "without it the boot fails: the first program does not start: Failed to execute /init") {
		t.Errorf("BINFMT_SCRIPT stays because %q", why)
	}
	if fragment := made.file("slim", "slim.config"); !bytes.Contains(fragment, []byte("# CONFIG_FHANDLE is not set")) {
		t.Errorf("the fragment is\n%s", fragment)
	}
	config, err := kconfig.ReadConfig(filepath.Join(made.Kernel, build.ConfigFile))
	if err != nil {
		t.Fatal(err)
	}
	if config["FHANDLE"] == "y" || config["TIMERFD"] != "y" || config["BINFMT_SCRIPT"] != "y" {
		t.Errorf("FHANDLE %q, TIMERFD %q, BINFMT_SCRIPT %q", config["FHANDLE"], config["TIMERFD"], config["BINFMT_SCRIPT"])
	}
}

// Two folders, the same bytes. The profile comes from the first one.
func TestReproducible(t *testing.T) {
	p, made := whole(t)
	other := open(t, "elsewhere")
	copySteps(t, p, other, made.step("optimised").Key)
	other.must(making("tiny", "--until", "optimised")...)
	again := other.step("tiny", "optimised")
	if !strings.HasPrefix(again.Dir, other.dir) {
		t.Fatalf("the second kernel is in %s", again.Dir)
	}
	for _, name := range []string{build.ImageFile, build.ConfigFile, build.SystemMapFile} {
		if !bytes.Equal(read(t, filepath.Join(made.Kernel, name)), read(t, filepath.Join(again.Dir, name))) {
			t.Errorf("%s differs between %s and %s", name, made.Kernel, again.Dir)
		}
	}
}
