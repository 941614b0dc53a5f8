// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/autofdo"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/graph"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/measure"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/pgo"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/tarlimit"
)

// Samples are branches that nodes recorded while jobs ran: perf's data, or a
// profile that was made of such before. They take the place of the workload's own
// run with its training data.
type Samples struct {
	Path   string `json:"path"`
	Weight int    `json:"weight"`
}

// ErrOtherKernel is a record of a kernel whose code is not known here.
var ErrOtherKernel = errors.New("branches are of a kernel that was not built here")

// perfMagic begins perf's data; anything else is taken for a profile.
var perfMagic = []byte("PERFILE2")

// sample adds a profile of branches, which the plain kernel tells: none is
// instrumented.
func (b *builder) sample() {
	sampling := b.p.Recipe.Sampling()
	if len(b.p.Samples) == 0 {
		b.tries("profile", "branches", stepPlain, func(ctx context.Context, kernel string, w *graph.Work) error {
			return b.p.Bench.Record(ctx, sampling, kernel, w)
		})
		if step := &b.steps[len(b.steps)-1]; sampling.CallTargets {
			inputs := Inputs{callTargets: "joined over thunks"}
			maps.Copy(inputs, step.Inputs)
			step.Inputs = inputs
		}
		return
	}
	inputs := b.inputs(b.p.sampleInputs())
	b.add("profile", "profile-of-samples", inputs, map[string]string{"kernel": stepPlain}, light,
		steady(inputs, b.p.sampleInputs, func(ctx context.Context, w *graph.Work) error {
			return b.p.mergeSamples(ctx, w.Need("kernel"), w)
		}))
}

// callTargets is the input of a profile that has those of indirect calls.
const callTargets = "call targets"

func (p *Pipeline) sampleInputs() (Inputs, error) {
	inputs := Inputs{}
	for i, s := range p.Samples {
		digest, err := graph.FileDigest(s.Path)
		if err != nil {
			return nil, err
		}
		inputs[fmt.Sprintf("samples %d", i+1)] = fmt.Sprintf("%s times %d", digest, s.Weight)
	}
	if p.Recipe.Sampling().CallTargets {
		inputs[callTargets] = "joined over thunks"
	}
	return inputs, nil
}

func (p *Pipeline) mergeSamples(ctx context.Context, plain string, w *graph.Work) error {
	tools := autofdo.Tools{Compiler: p.Recipe.Compiler}
	return aside(w, func(dir string) error {
		var all []autofdo.Weighted
		for i, s := range p.Samples {
			profile, err := p.profileOf(ctx, tools, s, plain, filepath.Join(dir, fmt.Sprintf("%d.afdo", i+1)))
			if err != nil {
				return err
			}
			functions, err := autofdo.Functions(profile)
			if err != nil {
				return err
			}
			w.Say("%s: %d functions, times %d", filepath.Base(s.Path), functions, s.Weight)
			all = append(all, autofdo.Weighted{Path: profile, Weight: s.Weight})
			w.Units(i+1, len(p.Samples))
		}
		return writeProfile(w, func(path string) error { return tools.Merge(ctx, all, path) })
	})
}

// profileOf is the profile of one file of samples, made where it is perf's data.
func (p *Pipeline) profileOf(ctx context.Context, tools autofdo.Tools, s Samples, plain, made string) (string, error) {
	recorded, err := isPerf(s.Path)
	if err != nil || !recorded {
		return s.Path, err
	}
	id, err := autofdo.KernelOf(ctx, s.Path)
	if err != nil {
		return "", err
	}
	kernel, err := p.linesOf(id, plain)
	if err != nil {
		return "", fmt.Errorf("%s: %w", s.Path, err)
	}
	return made, tools.FromPerf(ctx, p.Recipe.Sampling(), filepath.Join(kernel, build.LinesFile), s.Path, made)
}

// linesOf finds the kernel of a build id among the plain one and all that were
// built here under this name.
func (p *Pipeline) linesOf(id, plain string) (dir string, err error) {
	manifest, err := build.ReadManifest(plain)
	if err != nil {
		return "", err
	}
	if manifest.BuildID == id {
		return plain, nil
	}
	built, err := p.Candidates.List(p.Recipe.Name)
	if err != nil {
		return "", err
	}
	for _, c := range built {
		if _, err := os.Stat(filepath.Join(c.Kernel, build.LinesFile)); err == nil && c.BuildID == id {
			return c.Kernel, nil
		}
	}
	return "", fmt.Errorf("recorded on build %s, and no kernel %s of this cache is that one: record on a kernel that was built here (kernelctl kernel candidates %s): %w",
		id, p.Recipe.Name, p.Recipe.Name, ErrOtherKernel)
}

func isPerf(path string) (is bool, err error) {
	file, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	magic := make([]byte, len(perfMagic))
	if _, err := io.ReadFull(file, magic); err != nil {
		return false, fmt.Errorf("%s: neither perf's data nor a profile: %w", path, err)
	}
	return bytes.Equal(magic, perfMagic), nil
}

// writeProfile makes the folder of a step's profile.
func writeProfile(w *graph.Work, write func(path string) error) error {
	dir := filepath.Join(w.Dir, profileDir)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	path := filepath.Join(dir, autofdo.ProfileFile)
	if err := write(path); err != nil {
		return err
	}
	functions, err := autofdo.Functions(path)
	w.Say("%d functions have samples", functions)
	return err
}

func (e Emulator) Record(ctx context.Context, sampling autofdo.Sampling, kernel string, w *graph.Work) error {
	manifest, err := build.ReadManifest(kernel)
	if err != nil {
		return err
	}
	thunks, err := sampling.Thunks(filepath.Join(kernel, build.LinesFile))
	if err != nil {
		return err
	}
	return aside(w, func(dir string) error {
		branches, err := e.at(w).Branches(ctx, measure.Kernel{Name: "recorded", Dir: kernel}, e.Load, [2]uint64{thunks.Begin, thunks.End}, dir)
		if err != nil {
			return err
		}
		tools := autofdo.Tools{Compiler: manifest.Compiler.Name}
		return writeProfile(w, func(path string) error {
			return tools.FromBranches(ctx, filepath.Join(kernel, build.LinesFile), branches, path)
		})
	})
}

// Counters are what one node of a profiling run counted on an instrumented
// kernel. They take the place of the workload's own run with its training data.
type Counters struct {
	Run  uint64 `json:"run"`
	Node string `json:"node"`
	// BuildID of the kernel that counted.
	BuildID string `json:"build_id"`
	// Path of the archive: .gcda files below the folder gcov, and those of the
	// copying alone below gcov.copying.
	Path string `json:"path"`
}

// ErrOtherSource is a run on another kernel than the one that is built here.
var ErrOtherSource = errors.New("counters are of another source tree or configuration")

// What an archive of counters may unpack to: a kernel has some thousand files of
// a few kilobytes.
const (
	mostCounted  = 1 << 30
	mostCounters = 1 << 14
)

// profileOfRuns adds the step that makes a profile of runs.
func (b *builder) profileOfRuns() {
	inputs := Inputs{}
	for _, c := range b.p.Counters {
		digest, err := graph.FileDigest(c.Path)
		b.err = errors.Join(b.err, err)
		inputs[fmt.Sprintf("run %d node %s", c.Run, c.Node)] = digest + " of " + c.BuildID
	}
	b.add("profile", "profile-of-runs", inputs, map[string]string{"kernel": "instrumented"}, light, func(ctx context.Context, w *graph.Work) error {
		return mergeCounters(ctx, b.p.Counters, b.p.instrumentedBy(), w.Need("kernel"), w)
	})
}

// mergeCounters adds up the counters of all nodes of all runs. GCC's counters belong to
// one build: those of any other are refused before anything is read, with the
// command that makes the kernel to count on.
func mergeCounters(ctx context.Context, all []Counters, remedy, kernel string, w *graph.Work) error {
	manifest, err := build.ReadManifest(kernel)
	if err != nil {
		return err
	}
	for _, c := range all {
		if c.BuildID != manifest.BuildID {
			return fmt.Errorf("run %d, node %q: it counted on build %s, and the kernel of this build that counts is %s (%s): "+
				"publish that one (%s), and run the job again on it: %w",
				c.Run, c.Node, c.BuildID, manifest.BuildID, manifest.Release, remedy, ErrOtherSource)
		}
	}
	objects, err := os.ReadFile(filepath.Join(kernel, objectsFile))
	if err != nil {
		return err
	}
	var sum pgo.Profile
	for i, c := range all {
		var one pgo.Profile
		err := aside(w, func(dir string) error {
			if err := unpackCounters(ctx, c.Path, dir); err != nil {
				return err
			}
			var err error
			if one, err = pgo.Load(filepath.Join(dir, pgo.GuestFolder)); err != nil {
				return err
			}
			one, err = one.Below(strings.TrimSpace(string(objects)))
			return err
		})
		if err == nil && i > 0 {
			one, err = sum.Merge(one)
		}
		if err != nil {
			return fmt.Errorf("run %d, node %q: %w", c.Run, c.Node, err)
		}
		sum = one
		w.Units(i+1, len(all))
	}
	w.Say("%d objects have counters, %d of them ran, on %d nodes", len(sum.Files), len(sum.Ran()), len(all))
	return sum.WriteFor(filepath.Join(w.Dir, profileDir))
}

// unpackCounters takes regular files out of an archive, into the two folders
// that belong in it and nowhere else.
func unpackCounters(ctx context.Context, path, dir string) error {
	return eachCounter(ctx, path, func(header *tar.Header, entry io.Reader) error {
		return tarlimit.WriteFile(filepath.Join(dir, header.Name), entry) //nolint:gosec // G305: the name is local and clean
	})
}

// eachCounter reads an archive of counters and refuses one that has anything else in it.
func eachCounter(ctx context.Context, path string, take func(*tar.Header, io.Reader) error) (err error) {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	plain, err := gzip.NewReader(file)
	if err != nil {
		return fmt.Errorf("counters: %w", err)
	}
	budget := tarlimit.Budget{Bytes: mostCounted, Entries: mostCounters}
	err = budget.Each(plain, func(header *tar.Header, entry io.Reader) error {
		if err := errors.Join(ctx.Err(), isCounter(header)); err != nil {
			return err
		}
		return take(header, entry)
	})
	if err != nil {
		return fmt.Errorf("counters: %w", err)
	}
	return nil
}

func isCounter(header *tar.Header) error {
	name := header.Name
	top, _, inside := strings.Cut(name, "/")
	if header.Typeflag != tar.TypeReg || !inside || !filepath.IsLocal(name) || path.Clean(name) != name || top != pgo.GuestFolder && top != pgo.GuestFolder+pgo.Copying {
		return fmt.Errorf("%q does not belong in an archive of counters", name)
	}
	return nil
}
