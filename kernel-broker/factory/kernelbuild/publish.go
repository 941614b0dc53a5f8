// SPDX-License-Identifier: Apache-2.0

package kernelbuild

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/graph"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/pipeline"
)

// Publisher registers kernels that win.
type Publisher struct {
	Broker Broker
	// Beaten is the digest of the image that jobs got when the build began; empty for
	// the distribution's own.
	Beaten string
}

func (p Publisher) Publish(ctx context.Context, c pipeline.Candidate, log io.Writer) (string, error) {
	profile, err := p.Broker.Profile(ctx, c.Name)
	if err != nil {
		return "", err
	}
	if now := imageOf(profile); now != p.Beaten && now != c.ImageDigest {
		return "", fmt.Errorf("what jobs get of %s changed while the build ran, and the kernel was not compared with it: build again: %w", c.Name, kb.ErrFailedPrecondition)
	}
	settings, err := p.Broker.Settings(profile)
	if err != nil {
		return "", err
	}
	if err := choosable(profile, c.ImageDigest, settings); err != nil {
		return "", err
	}
	ref, err := p.Broker.Register(ctx, Registration{Profile: c.Name, Application: c.Application, Description: c.Description,
		Dir: c.Kernel, Settings: settings, Report: c.JSON(), Page: c.Page()})
	if err != nil {
		return "", err
	}
	fmt.Fprintf(log, "%s is in the catalog\n", ref)
	return ref.String(), nil
}

// choosable refuses a kernel that is in the catalog already, where jobs may not choose it.
func choosable(profile *kb.Profile, image string, s Settings) error {
	if profile == nil {
		return nil
	}
	for _, v := range profile.Versions {
		k := v.Kernel
		switch {
		case k.ImageDigest != image || !slices.Equal(k.Arguments, s.Arguments) || k.SystemCores != s.SystemCores:
		case v.Retired != nil:
			return fmt.Errorf("kernel %q is this one, and retired (%s), which is final: build another one, for example with another localversion in its recipe: %w",
				k.Ref(), cmp.Or(v.Retired.Reason, "no reason is given"), kb.ErrFailedPrecondition)
		case v.Quarantine != nil:
			return fmt.Errorf("kernel %q is this one, and quarantined (%s): find the cause, then kernelctl profile release %s lets jobs choose it: %w",
				k.Ref(), v.Quarantine.Reason, k.Ref(), kb.ErrFailedPrecondition)
		}
	}
	return nil
}

// registerInstrumented registers the kernel that counts, for jobs that ask for
// pgo. It has no verdict: it is slower than any other.
func (r *Request) registerInstrumented(ctx context.Context, broker Broker, p *pipeline.Pipeline) (kb.Ref, error) {
	name, last := p.Recipe.Name, p.InstrumentedStep()
	dir := p.Folder(last)
	if dir == "" {
		return kb.Ref{}, fmt.Errorf("kernel %q: the build left no kernel that counts (kernelctl kernel build log %s %s)", name, name, last)
	}
	k := Registration{Profile: name + kb.InstrumentedSuffix, Dir: dir, Description: "Counts for the build of " + name + ": slower than any other"}
	if p.Bench != nil {
		k.Application = p.Bench.Workload().Application
	}
	ref, err := broker.Register(ctx, k)
	if err == nil {
		r.Say("sbatch --kernel-profile=%s --kernel-profiling=pgo boots it, and kernelctl kernel build %s --from-run %s makes a kernel of what it counted",
			name, name, strings.Join(append(p.TracedRuns(), "RUN"), ","))
	}
	return ref, err
}

// CurrentKernel stores image and manifest of a profile's default version below
// dir, and returns their folder; empty if jobs get no kernel but stock.
func CurrentKernel(ctx context.Context, broker Broker, profile *kb.Profile, dir string) (string, error) {
	v := current(profile)
	if v == nil {
		return "", nil
	}
	dir, err := fetchKernel(ctx, broker, *v, filepath.Join(dir, strings.TrimPrefix(v.Kernel.ImageDigest, "sha256:")))
	if err != nil {
		return "", fmt.Errorf("current kernel %q: %w", v.Kernel.Ref(), err)
	}
	return dir, nil
}

// current is the version that jobs get; nil if they get no kernel but stock.
func current(profile *kb.Profile) *kb.ProfileVersion {
	if profile == nil {
		return nil
	}
	for i, v := range profile.Versions {
		if v.Kernel.Version == profile.DefaultVersion && v.Quarantine == nil && v.Retired == nil {
			return &profile.Versions[i]
		}
	}
	return nil
}

// imageOf is the digest of the kernel that jobs get; empty for stock.
func imageOf(profile *kb.Profile) string {
	if v := current(profile); v != nil {
		return v.Kernel.ImageDigest
	}
	return ""
}

func fetchKernel(ctx context.Context, broker Broker, v kb.ProfileVersion, dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	image := filepath.Join(dir, build.ImageFile)
	digest, err := graph.FileDigest(image)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if digest != v.Kernel.ImageDigest {
		if err := broker.Fetch(ctx, v.Kernel.ImageDigest, v.Kernel.ImageSize, image); err != nil {
			return "", err
		}
	}
	text, err := broker.Provenance(ctx, v)
	if err != nil {
		return "", err
	}
	manifest := describe(v.Kernel)
	if text != nil {
		if manifest, err = build.ParseManifest(text); err != nil {
			return "", err
		}
	}
	return dir, manifest.Write(dir)
}

// describe makes the manifest of a kernel that was registered without one.
func describe(k kb.Kernel) build.Manifest {
	return build.Manifest{
		Format: build.ManifestFormat, Name: k.Profile, Release: k.Release, BuildID: k.BuildID, Architecture: k.Architecture,
		Image: build.File{Name: build.ImageFile, Digest: k.ImageDigest, Size: int64(k.ImageSize)},
	}
}
