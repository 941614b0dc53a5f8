// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/autofdo"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
)

func sampled(r *build.Recipe) {
	r.Slimming, r.Optimisation, r.Compiler = "", build.OptimiseAutoFDO, "clang-19"
}

// sampleFile writes a profile, as another build or site made it.
func sampleFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), autofdo.ProfileFile)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestProfilesOfTwoSites(t *testing.T) {
	w := newWorld(t, sampled)
	w.pipe.Samples = []Samples{
		{Path: sampleFile(t, "vfs_write:30:10\n 1: 10\n"), Weight: 1},
		{Path: sampleFile(t, "vfs_write:3:1\n 1: 1\nvfs_read:3:1\n 1: 1\n"), Weight: 10},
	}
	_, worked, err := w.build()
	if err != nil || strings.Contains(worked, "record") || !strings.Contains(worked, "compile optimised") {
		t.Fatalf("worked on %q, %v", worked, err)
	}
	g, err := w.pipe.Graph()
	if err != nil {
		t.Fatal(err)
	}
	results, err := w.runner().Run(t.Context(), "fake", g, "profile")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(results["profile"].Files(), profileDir, autofdo.ProfileFile))
	if want := "vfs_write:60:20\n 1: 20\nvfs_read:30:10\n 1: 10\n"; err != nil || string(text) != want {
		t.Errorf("the profile is %q, %v", text, err)
	}

	// Another weight is another kernel.
	w.pipe.Samples[1].Weight = 20
	if _, worked, err := w.build(); err != nil || !strings.Contains(worked, "compile optimised") {
		t.Errorf("with another weight: worked on %q, %v", worked, err)
	}
}

// lost is a bench whose workload has a program that nobody built.
type lost struct{ *fake }

func (lost) Inputs() (Inputs, error) { return nil, errors.New("no such program") }

func TestBranchesOfALostWorkload(t *testing.T) {
	w := newWorld(t, sampled)
	w.pipe.Bench = lost{w.fake}
	if _, worked, err := w.build(); err == nil || !strings.Contains(err.Error(), "no such program") || worked != "" {
		t.Errorf("worked on %q, %v", worked, err)
	}
}

// A file that perf still writes to is another one hours later, when it is read.
func TestSamplesThatChangeMeanwhile(t *testing.T) {
	w := newWorld(t, sampled)
	file := sampleFile(t, "vfs_write:30:10\n 1: 10\n")
	w.pipe.Samples = []Samples{{Path: file, Weight: 1}}
	w.after = func(done string) {
		if done == "compile plain" {
			if err := os.WriteFile(file, []byte("vfs_read:30:10\n 1: 10\n"), 0o600); err != nil {
				t.Error(err)
			}
		}
	}
	if _, _, err := w.build(); err == nil || !strings.Contains(err.Error(), "samples 1 changed while the build ran") {
		t.Errorf("%v", err)
	}
}

// TestSamplesOfAnotherKernel: addresses that perf recorded mean nothing on another
// kernel, and a file may be anything.
func TestSamplesOfAnotherKernel(t *testing.T) {
	w := newWorld(t, sampled)
	w.lines = "0123456789abcdef0123456789abcdef01234567"
	plain := t.TempDir()
	if err := kernelIn(t, plain, w.lines); err != nil {
		t.Fatal(err)
	}
	if dir, err := w.pipe.linesOf(w.lines, plain); err != nil || dir != plain {
		t.Errorf("the plain kernel: %q, %v", dir, err)
	}
	const published = "1123456789abcdef0123456789abcdef01234567"
	built := t.TempDir()
	if err := kernelIn(t, built, published); err != nil {
		t.Fatal(err)
	}
	if err := w.pipe.Candidates.Put(Candidate{Name: "fake", ID: "0a0b0c0d0e0f", BuildID: published, Kernel: built}); err != nil {
		t.Fatal(err)
	}
	if dir, err := w.pipe.linesOf(published, plain); err != nil || dir != built {
		t.Errorf("a kernel that was built before: %q, %v", dir, err)
	}
	if err := os.Remove(filepath.Join(built, build.LinesFile)); err != nil {
		t.Fatal(err)
	}
	_, err := w.pipe.linesOf(published, plain)
	if !errors.Is(err, ErrOtherKernel) || !strings.Contains(err.Error(), "kernelctl kernel candidates fake") {
		t.Errorf("a kernel without lines: %v", err)
	}
	w.pipe.Samples = []Samples{{Path: sampleFile(t, "short"), Weight: 1}}
	if _, _, err := w.build(); err == nil || !strings.Contains(err.Error(), "neither perf's data nor a profile") {
		t.Errorf("a file of five bytes: %v", err)
	}
}

func kernelIn(t *testing.T, dir, id string) error {
	t.Helper()
	return errors.Join(os.WriteFile(filepath.Join(dir, build.LinesFile), nil, 0o600), build.Manifest{Format: build.ManifestFormat, BuildID: id}.Write(dir))
}
