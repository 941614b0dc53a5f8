// SPDX-License-Identifier: Apache-2.0

// Package autofdo makes clang's sample profiles of a kernel from records of its
// branches: which were taken, and what ran between them. No kernel is
// instrumented for that. The records are of two kinds:
//
//   - FromBranches takes those of the emulator's plugin (measure/plugin/flow.h),
//     which sees each branch.
//   - FromPerf takes what a site's own nodes sampled with "perf record -b" while
//     jobs ran on a kernel that the factory has made.
//
// Both name addresses, and become one kind of record, in which a branch through a
// thunk leads from its caller to where it led. The kernel's vmlinux says which lines they are, so that it
// must be of the same build, and have been compiled with MarkFlags. Lines outlast
// a build: a profile fits any kernel of the same source, and profiles of several
// kernels, runs and sites are merged, with weights.
//
// Profiles are text, which can be read and compared, and is the same each time.
package autofdo

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/digest"
)

// ProfileFile is the profile in a folder of one.
const ProfileFile = "kernel.afdo"

// Tools of one LLVM release.
type Tools struct {
	// Compiler is clang's name, of which the tools have the same suffix.
	Compiler string
}

func (t Tools) named(name string) string {
	return name + strings.TrimPrefix(t.Compiler, "clang")
}

// KeepLines copies of a vmlinux what the other tools need: code and lines, without
// relocations and the places of variables, which are four fifths of it.
func (t Tools) KeepLines(ctx context.Context, vmlinux, to string) error {
	_, err := output(ctx, t.named("llvm-objcopy"), "--wildcard", "-R", ".rel*", "-R", ".debug_loc", "-R", ".debug_frame",
		"--compress-debug-sections=zstd", vmlinux, to)
	return err
}

// FromBranches makes a profile of what the emulator's plugin wrote.
func (t Tools) FromBranches(ctx context.Context, vmlinux, branches, profile string) error {
	err := t.profgen(ctx, profile, "--binary="+vmlinux, "--unsymbolized-profile="+branches, "--use-offset=0")
	if err != nil {
		return fmt.Errorf("profile of %q: %w", branches, err)
	}
	return nil
}

// FromPerf makes a profile of what perf recorded with branches, on the kernel whose
// vmlinux is given and no other. Branches are joined over its thunks as the sampling says.
func (t Tools) FromPerf(ctx context.Context, sampling Sampling, vmlinux, data, profile string) error {
	branches := profile + ".branches"
	defer func() { _ = os.Remove(branches) }() // of no use to anybody else
	if err := recorded(ctx, sampling, vmlinux, data, branches); err != nil {
		return fmt.Errorf("profile of %q: %w", data, err)
	}
	return t.FromBranches(ctx, vmlinux, branches, profile)
}

func (t Tools) profgen(ctx context.Context, profile string, args ...string) error {
	if _, err := output(ctx, t.named("llvm-profgen"), append(args, "--format=text", "--output="+profile)...); err != nil {
		return err
	}
	return check(profile)
}

// ErrEmpty is a profile in which no function has a sample.
var ErrEmpty = errors.New("no function of the kernel has a sample")

// check refuses a profile without a function: LLVM's tools write one without a word
// when addresses and kernel do not belong together.
func check(profile string) error {
	functions, err := Functions(profile)
	if err == nil && functions == 0 {
		err = ErrEmpty
	}
	return err
}

// Functions is the number of functions that have samples of their own.
func Functions(profile string) (n int, err error) {
	file, err := os.Open(profile)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if text := lines.Text(); text != "" && text[0] != ' ' {
			n++
		}
	}
	return n, lines.Err()
}

// OfProbes reports whether a profile counts probes, and not lines. The compiler takes either without a word.
func OfProbes(profile string) (bool, error) {
	text, err := os.ReadFile(profile)
	return bytes.Contains(text, []byte("!CFGChecksum: ")), err
}

// Weighted is a profile that counts so many times.
type Weighted struct {
	Path   string
	Weight int
}

// Binary writes a profile in the form that compilers and linkers read function by function: as text it takes them minutes.
func (t Tools) Binary(ctx context.Context, profile, binary string) error {
	if _, err := output(ctx, t.named("llvm-profdata"), "merge", "--sample", "--extbinary", "--output="+binary, profile); err != nil {
		return fmt.Errorf("profile %q: %w", profile, err)
	}
	return nil
}

// Merge adds profiles up.
func (t Tools) Merge(ctx context.Context, all []Weighted, profile string) error {
	args := []string{"merge", "--sample", "--text", "--output=" + profile}
	for _, one := range all {
		args = append(args, fmt.Sprintf("--weighted-input=%d,%s", one.Weight, one.Path))
	}
	if _, err := output(ctx, t.named("llvm-profdata"), args...); err != nil {
		return fmt.Errorf("merging %d profiles: %w", len(all), err)
	}
	return check(profile)
}

// KernelOf is the build id of the kernel on which perf recorded.
func KernelOf(ctx context.Context, data string) (string, error) {
	said, err := output(ctx, "perf", "buildid-list", "--input", data)
	if err != nil {
		return "", fmt.Errorf("%s: %w", data, err)
	}
	id := kernelIn(said)
	if id == "" {
		return "", fmt.Errorf("%s does not name the kernel on which it was recorded: perf record leaves build ids out with -z, with -B and into a pipe; "+
			"record again with --buildid-mmap: %w", data, ErrUnnamed)
	}
	return id, nil
}

// Faults of perf's data that show without the kernel.
var (
	ErrUnnamed    = errors.New("no build id of the kernel")
	ErrBranchless = errors.New("no branches")
)

// CheckPerf finds out whether perf's data can become a profile of the kernel that they name.
func CheckPerf(ctx context.Context, data string) error {
	if _, err := KernelOf(ctx, data); err != nil {
		return err
	}
	said, err := output(ctx, "perf", "evlist", "-v", "--input", data)
	if err != nil {
		return fmt.Errorf("%s: %w", data, err)
	}
	if !strings.Contains(said, "BRANCH_STACK") {
		return fmt.Errorf("%s was recorded without branches: record again with -b: %w", data, ErrBranchless)
	}
	return nil
}

// kernelName is perf's for the kernel that ran.
const kernelName = "[kernel.kallsyms]"

// kernelIn is the build id of the running kernel in perf's list; perf adds the
// symbol by which it found the kernel's place. Guests and files have other names.
func kernelIn(list string) string {
	names := []string{kernelName, kernelName + symbolText, kernelName + symbolStext}
	for line := range strings.Lines(list) {
		if id, name, ok := strings.Cut(strings.TrimSpace(line), " "); ok && slices.Contains(names, name) {
			return id
		}
	}
	return ""
}

func FolderDigest(dir string) (string, error) {
	sum, _, err := digest.File(filepath.Join(dir, ProfileFile))
	if err != nil {
		return "", fmt.Errorf("profile: %w", err)
	}
	return sum, nil
}

// What is kept of a tool's output, which may complain of each sample.
const (
	mostSaid       = 16 << 20
	mostComplained = 64 << 10
)

// end keeps the last bytes of a stream.
type end struct {
	most int
	text []byte
}

// Write implements io.Writer. What is kept moves only after as much again came.
func (e *end) Write(p []byte) (int, error) {
	e.text = append(e.text, p[max(0, len(p)-e.most):]...)
	if len(e.text) >= 2*e.most {
		e.text = append(e.text[:0], e.last()...)
	}
	return len(p), nil
}

func (e *end) last() []byte { return e.text[max(0, len(e.text)-e.most):] }

// words are the last that an error tells.
func (e *end) words() string {
	words := bytes.TrimSpace(e.last())
	return string(words[max(0, len(words)-500):])
}

// output runs a tool and gives its last words in an error.
func output(ctx context.Context, name string, args ...string) (string, error) {
	said, complained := end{most: mostSaid}, end{most: mostComplained}
	cmd := exec.CommandContext(ctx, name, args...) //nolint:gosec // G204: no shell; the tools are LLVM's and perf
	cmd.Stdout, cmd.Stderr = &said, &complained
	if err := cmd.Run(); err != nil {
		words := complained.words()
		if words == "" {
			words = said.words()
		}
		return "", fmt.Errorf("%s: %w: %s", name, err, words)
	}
	return string(said.last()), nil
}
