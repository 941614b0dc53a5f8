// SPDX-License-Identifier: Apache-2.0

//go:build lab

package factory

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/pipeline"
)

// broker starts a real one, which has a catalog and no cluster, and returns its
// address.
func broker(t *testing.T, p place) string {
	t.Helper()
	// The name of a socket is short.
	dir, err := os.MkdirTemp("", "kb-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	config := fmt.Sprintf("data_dir: %[1]s/data\nsocket: %[1]s/socket\nlisten: 127.0.0.1:0\nsnapshot: \"\"\n"+
		"slurm: {bin_dir: %[1]s/none, user: root}\n", dir)
	if err := os.WriteFile(dir+"/broker.yaml", []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(dir + "/log")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), built()+"/bin/kernel-broker", "--config", dir+"/broker.yaml")
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // that it ended is said where somebody needs it
		close(ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may be gone
		<-ended
		if t.Failed() {
			text, err := os.ReadFile(log.Name())
			t.Logf("broker: %v\n%s", err, text)
		}
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	})
	address := "unix://" + dir + "/socket"
	wait(t, "the broker answers", func() bool {
		select {
		case <-ended:
			t.Fatal("the broker ended")
		default:
		}
		return p.kernelctl("profile", "list", "--broker", address).exit == 0
	})
	return address
}

func TestJudgedAndPublished(t *testing.T) {
	p := open(t, "whole")
	address := broker(t, p)
	// As small a kernel has no mitigations, which this site allows.
	site := filepath.Join(t.TempDir(), "factory.yaml")
	if err := os.WriteFile(site, []byte("mitigations: any\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	publishing := func(kernel string) []string {
		return []string{"kernel", "build", kernel, "--catalog", catalog, "--broker", address, "--site", site, "--output", "json"}
	}
	list := func(p place) string { return p.must("kernel", "list", "--broker", address).out }

	t.Run("a kernel that fails", func(t *testing.T) {
		for kernel, why := range map[string]string{
			"failing": "the workload fails on the kernel: check failed: the sea is dry on ",
			"dead":    "the kernel does not boot: the first program does not start: Failed to execute /init",
		} {
			p := place{t, p.dir}
			s := p.kernelctl(publishing(kernel)...)
			var c pipeline.Candidate
			decode(t, s.out, &c)
			if s.exit != 1 || c.Outcome != pipeline.Failed || c.Published != "" || !strings.HasPrefix(c.Reason, why) || c.Console == "" {
				t.Errorf("%s: exit %d, %+v\n%s", kernel, s.exit, c, s.err)
			}
			if !strings.Contains(s.err, "nothing is published: "+why) {
				t.Errorf("%s: it says\n%s", kernel, s.err)
			}
			if candidates := p.must("kernel", "candidates", kernel).out; !strings.Contains(candidates, c.ID) || !strings.Contains(candidates, "failed") {
				t.Errorf("%s %s is not among the candidates:\n%s", kernel, c.ID, candidates)
			}
			if published := list(p); strings.Contains(published, kernel) {
				t.Errorf("%s is published:\n%s", kernel, published)
			}
		}
	})

	t.Run("a kernel that is better", func(t *testing.T) {
		p, made := whole(t)
		var c pipeline.Candidate
		decode(t, p.must(publishing("tiny")...).out, &c)
		if c.Outcome != kb.OutcomeBenefit || c.Published != "tiny@1" || c.ID != made.ID {
			t.Fatalf("it became %+v", c)
		}
		for _, step := range p.status("tiny").Steps {
			if !step.Cached && !slices.Contains([]string{"verdict", "report", "publish"}, step.Name) {
				t.Errorf("step %s was done again for another policy", step.Name)
			}
		}
		show := p.must("kernel", "show", "tiny@1", "--broker", address).out
		manifest, err := build.ReadManifest(made.Kernel)
		if err != nil {
			t.Fatal(err)
		}
		for _, words := range []string{
			manifest.Source.Digest, manifest.Config.Digest, manifest.Compiler.Version, manifest.Profile.Digest, manifest.InputsKey,
			manifest.Fragments[0].Digest, "-fprofile-use", "kernelctl ", "Verdict:", "benefit", made.ImageDigest, made.BuildID,
		} {
			if words == "" || !strings.Contains(show, words) {
				t.Errorf("%q is not in\n%s", words, show)
			}
		}
	})

	t.Run("the same kernel again", func(t *testing.T) {
		p, _ := whole(t)
		var c pipeline.Candidate
		decode(t, p.must(publishing("tiny")...).out, &c)
		if c.Outcome != kb.OutcomeBenefit || c.Published != "tiny@1" {
			t.Errorf("it became %+v", c)
		}
		if said := list(p); strings.Count(said, "tiny@") != 1 {
			t.Errorf("kernels:\n%s", said)
		}
	})
}
