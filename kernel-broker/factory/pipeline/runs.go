// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/graph"
)

// traced and counted are the runs' parts by what they went into.
func (p *Pipeline) traced() []build.RunPart {
	var parts []build.RunPart
	for _, trace := range p.Traces {
		for _, result := range trace.Results {
			parts = append(parts, build.RunPart{Run: trace.Run, Node: result.Node, Use: build.RunForSlimming, Digest: result.Digest})
		}
	}
	return parts
}

func (p *Pipeline) counted() ([]build.RunPart, error) {
	var parts []build.RunPart
	for _, c := range p.Counters {
		digest, err := graph.FileDigest(c.Path)
		if err != nil {
			return nil, err
		}
		parts = append(parts, build.RunPart{Run: c.Run, Node: c.Node, Use: build.RunForProfile, Digest: digest})
	}
	return parts, nil
}

// instrumentedBy is the command that makes the kernel to count on for this build:
// what jobs used is part of its configuration.
func (p *Pipeline) instrumentedBy() string {
	command := "kernelctl kernel build " + p.Recipe.Name + " --instrumented"
	if runs := p.TracedRuns(); len(runs) > 0 {
		command += " --from-run " + strings.Join(runs, ",")
	}
	return command
}

// TracedRuns are the numbers of the runs by which the build is slimmed: counters of
// its instrumented kernel belong to them.
func (p *Pipeline) TracedRuns() []string {
	var runs []string
	for _, trace := range p.Traces {
		runs = append(runs, fmt.Sprint(trace.Run))
	}
	return runs
}

// InstrumentedStep is the step of which the kernel that counts is published.
func (p *Pipeline) InstrumentedStep() string {
	if len(p.Traces) > 0 {
		return nameOf(string(build.Instrumented))
	}
	return string(build.Instrumented)
}

// named is the step of which a candidate is published: where it was made of runs,
// one that says so in its manifest.
func (b *builder) named(candidate string) string {
	parts, err := b.p.counted()
	b.err = errors.Join(b.err, err)
	parts = append(b.p.traced(), parts...)
	if len(parts) == 0 {
		return candidate
	}
	return b.name(candidate, parts)
}

// name adds a step that names runs in a kernel's manifest. It is a step of its own:
// the kernel is compiled for what it is, and not for where that comes from, so that
// two runs of jobs that do the same share it.
func (b *builder) name(step string, parts []build.RunPart) string {
	text, err := json.Marshal(parts)
	b.err = errors.Join(b.err, err)
	b.add(nameOf(step), "of-runs", Inputs{"runs": string(text)}, map[string]string{"kernel": step}, light, func(_ context.Context, w *graph.Work) error {
		manifest, err := build.ReadManifest(w.Need("kernel"))
		if err != nil {
			return err
		}
		manifest.Runs = parts
		return errors.Join(os.CopyFS(w.Dir, os.DirFS(w.Need("kernel"))), manifest.Write(w.Dir))
	})
	return nameOf(step)
}

func nameOf(step string) string { return step + "-of-runs" }
