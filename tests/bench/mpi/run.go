// SPDX-License-Identifier: Apache-2.0

package mpi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/tests/lab"
)

const (
	user = "alice"
	// limit is no figure, only an end to waiting for one job.
	limit = 30 * time.Minute
)

// Options of a run.
type Options struct {
	// Own is the nodes' own kernel, Kernels are the others; all are folders of
	// build/kernels.
	Own     string
	Kernels []string
	Rounds  int
	// Samples and Messages are the program's.
	Samples, Messages int
	Program           string
	Dir               string
}

// Result of a run.
type Result struct {
	Command  string    `json:"command"`
	Begun    time.Time `json:"begun"`
	Accel    string    `json:"accelerator"`
	Rounds   int       `json:"rounds"`
	Kernels  []string  `json:"kernels"`
	Unequal  []string  `json:"other_mitigations,omitempty"`
	Lines    []Line    `json:"lines"`
	Outcomes []Outcome `json:"outcomes"`
}

// kernelName is a folder, and a profile's name.
var kernelName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]*$`)

func (o Options) validate() error {
	if o.Rounds < 1 || o.Samples < 1 || o.Messages < 1 {
		return errors.New("--rounds, --samples and --messages: at least 1")
	}
	if len(o.Kernels) == 0 {
		return errors.New("--kernels: at least one beside the nodes' own")
	}
	all := o.all()
	for i, k := range all {
		if !kernelName.MatchString(k) {
			return fmt.Errorf("kernel %q: not the name of a folder of build/kernels", k)
		}
		if slices.Contains(all[:i], k) {
			return fmt.Errorf("kernel %s: named twice", k)
		}
	}
	if _, err := os.Stat(o.Program); err != nil {
		return fmt.Errorf("program: %w: make bench-mpi builds it, with MPI", err)
	}
	return nil
}

// all kernels, the nodes' own first.
func (o Options) all() []string { return append([]string{o.Own}, o.Kernels...) }

// Run brings a cluster up and measures on it.
func Run(ctx context.Context, o Options, progress io.Writer) (result *Result, err error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	l, err := lab.Up(ctx, lab.Options{
		Dir: filepath.Join(o.Dir, "lab"), Kernel: o.Own, Nodes: 2, Progress: progress, ReadyTimeout: 10 * time.Minute, Owned: true,
		Files: map[string]string{program: o.Program}, Slurm: lab.SlurmOptions{ReturnToService: 1},
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.Down(context.WithoutCancel(ctx), err != nil)) }()
	releases, err := o.register(ctx, l)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(l.Home(user), "mpi.sh"), []byte(script), 0o755); err != nil {
		return nil, err
	}
	result = &Result{Begun: time.Now(), Accel: l.Options().Accel, Rounds: o.Rounds, Kernels: o.all()}
	if err := o.rounds(ctx, l, releases, result, progress); err != nil {
		return nil, err
	}
	result.Unequal = unequal(result.Kernels, result.Outcomes)
	result.Lines, err = tabulate(result.Kernels, result.Outcomes)
	return result, err
}

// rounds run a job on each kernel, and begin each time with another one.
func (o Options) rounds(ctx context.Context, l *lab.Lab, releases map[string]string, result *Result, progress io.Writer) error {
	for round := range o.Rounds {
		for _, kernel := range turn(result.Kernels, round) {
			one, err := o.job(ctx, l, fmt.Sprintf("mpi-%s-%d", kernel, round+1), kernel)
			if err != nil {
				return err
			}
			if one.Release != releases[kernel] {
				return fmt.Errorf("round %d: the job on %s ran on %s and not on %s", round+1, kernel, one.Release, releases[kernel])
			}
			one.Kernel, one.Round = kernel, round+1
			result.Outcomes = append(result.Outcomes, one)
			fmt.Fprintf(progress, "round %d of %d: %s: %.0f us, %.2f MB/s\n", round+1, o.Rounds, kernel,
				one.Latency[0].Median*1e6, one.Bandwidth[len(one.Bandwidth)-1].Median/1e6)
		}
	}
	return nil
}

// turn is the order of a round.
func turn(kernels []string, round int) []string {
	first := round % len(kernels)
	return slices.Concat(kernels[first:], kernels[:first])
}

// register makes a profile of each kernel but the nodes' own, which needs none. It
// returns the releases of all.
func (o Options) register(ctx context.Context, l *lab.Lab) (map[string]string, error) {
	releases := map[string]string{o.Own: l.Kernel().Release}
	for _, name := range o.Kernels {
		dir := filepath.Join(l.Options().Kernels, name)
		manifest, err := build.ReadManifest(dir)
		if err != nil {
			return nil, fmt.Errorf("kernel %s: %w: make kernels KERNELS=%s", name, err, name)
		}
		if manifest.Modules != "" {
			return nil, fmt.Errorf("kernel %s: has modules, and only the nodes' own gets an initrd: --kernel %s", name, name)
		}
		releases[name] = manifest.Release
		if err := registerOne(ctx, l, name, dir); err != nil {
			return nil, fmt.Errorf("kernel %s: %w", name, err)
		}
	}
	return releases, nil
}

func registerOne(ctx context.Context, l *lab.Lab, name, dir string) error {
	// Beside the lab's own folders, which have other profiles.
	const inside = "/run/lab/catalog/mpi"
	base := filepath.Join(l.CatalogDir(), "mpi")
	kernels, profiles := filepath.Join(base, "kernels", name), filepath.Join(base, name)
	if err := errors.Join(os.MkdirAll(kernels, 0o755), os.MkdirAll(profiles, 0o755)); err != nil {
		return err
	}
	for _, file := range []string{build.ManifestFile, build.ImageFile} {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err == nil {
			err = os.WriteFile(filepath.Join(kernels, file), text, 0o644)
		}
		if err != nil {
			return err
		}
	}
	text := fmt.Sprintf("name: %s\napplication: mpi-pingpong\ndescription: Kernel %s, for bench-mpi\ndefault_version: 1\n"+
		"versions:\n  - version: 1\n    kernel: %s\n", profileOf(name), name, name)
	if err := os.WriteFile(filepath.Join(profiles, profileOf(name)+".yaml"), []byte(text), 0o644); err != nil {
		return err
	}
	r, err := l.Exec(ctx, "root", "kernelctl", "profile", "apply", inside+"/"+name, "--kernels", inside+"/kernels")
	if err == nil && r.Exit != 0 {
		err = fmt.Errorf("kernelctl profile apply: exit %d: %s", r.Exit, strings.TrimSpace(r.Stderr))
	}
	return err
}

func profileOf(kernel string) string { return "bench-" + kernel }

// job runs the program once, and waits for its end.
func (o Options) job(ctx context.Context, l *lab.Lab, name, kernel string) (Outcome, error) {
	argv := []string{"sbatch", "--parsable", "--wait", "--job-name=" + name}
	if kernel != o.Own {
		argv = append(argv, "--kernel-profile="+profileOf(kernel))
	}
	argv = append(argv, "mpi.sh", "--samples", strconv.Itoa(o.Samples), "--messages", strconv.Itoa(o.Messages))
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	r, err := l.Exec(ctx, user, argv...)
	if err != nil {
		return Outcome{}, err
	}
	if r.Exit != 0 {
		log, _ := os.ReadFile(filepath.Join(l.Home(user), name+".log")) // may not be there
		return Outcome{}, fmt.Errorf("job %s: exit %d: %s", name, r.Exit, strings.TrimSpace(r.Stderr+string(log)))
	}
	return outcome(l.Home(user), name)
}
