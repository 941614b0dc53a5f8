// SPDX-License-Identifier: Apache-2.0

package ocean

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
)

// program is what MITgcm's makefile builds.
const program = "mitgcmuv"

// experimentName is a folder of verification/, and nothing else.
var experimentName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]*$`)

// Model is one experiment of a checkout.
type Model struct {
	Source     string
	Experiment string
}

func (m Model) folder(parts ...string) string {
	return filepath.Join(append([]string{m.Source, "verification", m.Experiment}, parts...)...)
}

// check says what is missing before anything is built.
func (m Model) check() error {
	if !experimentName.MatchString(m.Experiment) {
		return fmt.Errorf("experiment %q: not the name of a folder", m.Experiment)
	}
	for _, path := range []string{filepath.Join(m.Source, "tools", "genmake2"), m.folder("code"), m.folder("input", "data")} {
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("MITgcm: %w: name a checkout of MITgcm, and one of the folders of its verification/", err)
		}
	}
	if _, err := exec.LookPath("gfortran"); err != nil {
		return errors.New("MITgcm needs gfortran: make deps-long")
	}
	return nil
}

// build makes the model in dir, for one process and without shared libraries, since
// a node has none of Fortran's. The checkout stays as it is.
func (m Model) build(ctx context.Context, dir string, jobs int, log io.Writer) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	for _, step := range [][]string{
		{filepath.Join(m.Source, "tools", "genmake2"), "-rootdir", m.Source, "-mods", m.folder("code"),
			"-of", filepath.Join(m.Source, "tools", "build_options", "linux_amd64_gfortran")},
		{"make", "-s", "depend"},
		{"make", "-s", "-j" + strconv.Itoa(jobs), "LINK=gfortran -static"},
	} {
		cmd := exec.CommandContext(ctx, step[0], step[1:]...)
		cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
		if err := cmd.Run(); err != nil {
			return "", fmt.Errorf("MITgcm: %s: %w", filepath.Base(step[0]), err)
		}
	}
	return filepath.Join(dir, program), nil
}
