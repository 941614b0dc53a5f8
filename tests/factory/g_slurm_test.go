// SPDX-License-Identifier: Apache-2.0

//go:build lab

package factory

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/graph"
	"github.com/kernelbroker/kernelbroker/tests/support/slurmtest"
)

// Slurm's jobs make the same kernel, byte for byte, as kernelctl by itself. The
// guest that boots it is a job too.
func TestAsSlurmJobs(t *testing.T) {
	_, made := whole(t)
	slurmtest.Start(t)
	p := anew(t, "jobs")
	p.must(making("tiny", "--until", "trace", "--where", "slurm", "--partition", slurmtest.Partition)...)
	jobs := map[string]bool{}
	for _, step := range p.status("tiny").Steps {
		if step.State != graph.Done {
			continue
		}
		if step.Job == "" || jobs[step.Job] {
			t.Errorf("step %s ran as job %q", step.Name, step.Job)
		}
		jobs[step.Job] = true
	}
	if len(jobs) < 4 {
		t.Errorf("the jobs are %v:\n%s", jobs, say(p.status("tiny")))
	}
	for _, name := range []string{build.ImageFile, build.ConfigFile, build.SystemMapFile} {
		if !bytes.Equal(made.file("traced", name), p.file("tiny", "traced", name)) {
			t.Errorf("%s is another than without Slurm: %s", name, filepath.Join(p.step("tiny", "traced").Dir, name))
		}
	}
}
