// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/graph"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/pgo"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/tarlimit"
)

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
func unpackCounters(ctx context.Context, path, dir string) (err error) {
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
		return errors.Join(ctx.Err(), unpackOne(header, entry, dir))
	})
	if err != nil {
		return fmt.Errorf("counters: %w", err)
	}
	return nil
}

func unpackOne(header *tar.Header, from io.Reader, dir string) error {
	name := header.Name
	top, _, inside := strings.Cut(name, "/")
	if header.Typeflag != tar.TypeReg || !inside || !filepath.IsLocal(name) || path.Clean(name) != name || top != pgo.GuestFolder && top != pgo.GuestFolder+pgo.Copying {
		return fmt.Errorf("%q does not belong in an archive of counters", name)
	}
	return tarlimit.WriteFile(filepath.Join(dir, name), from) //nolint:gosec // G305: the name is local and clean
}
