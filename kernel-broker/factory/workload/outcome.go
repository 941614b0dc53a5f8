// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/vm"
)

// Region is what lies between two markers: a part of the workload that is
// counted by itself.
type Region struct {
	Marker     int
	Name       string
	Operations int64
}

// Outcome is what a guest said of its run.
type Outcome struct {
	Regions []Region
	// Mitigations of the processor's flaws, as the kernel reports them.
	Mitigations []string
}

// FailedError is a workload that did not work on a kernel that booted.
type FailedError struct {
	Workload string
	// Part is setup, before, run, after or check.
	Part string
	// Output is the end of what the parts printed.
	Output string
}

func (e *FailedError) Error() string {
	return fmt.Sprintf("%s failed:\n%s", e.Part, e.Output)
}

var parts = map[int]string{
	exitSetup: "setup", exitBefore: "before", exitRun: "run", exitAfter: "after", exitCheck: "check",
}

// OfAnotherMachine says whose words the error has: the guest's.
func (*FailedError) OfAnotherMachine() bool { return true }

// Outcome reads what a guest left; a *FailedError if it did not end well.
func (w Workload) Outcome(result vm.Result) (Outcome, error) {
	if result.ExitCode != 0 {
		return Outcome{}, w.failure(result)
	}
	regions, err := readRegions(filepath.Join(result.Files, "regions"))
	if err != nil {
		return Outcome{}, fmt.Errorf("workload %q: %w", w.Name, err)
	}
	mitigations, err := vm.ReadText(filepath.Join(result.Files, "mitigations"))
	if err != nil {
		return Outcome{}, fmt.Errorf("workload %q: %w", w.Name, err)
	}
	return Outcome{Regions: regions, Mitigations: linesOf(string(mitigations))}, nil
}

func (w Workload) failure(result vm.Result) error {
	part, known := parts[result.ExitCode]
	if !known {
		part = fmt.Sprintf("script (exit code %d)", result.ExitCode)
	}
	output, err := vm.ReadEnd(filepath.Join(result.Files, "output"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	lines := linesOf(string(output))
	return &FailedError{Workload: w.Name, Part: part, Output: strings.Join(lines[max(0, len(lines)-30):], "\n")}
}

// readRegions reads lines of "MARKER NAME OPERATIONS", one for each region in
// the order in which they ran.
func readRegions(path string) ([]Region, error) {
	text, err := vm.ReadText(path)
	if err != nil {
		return nil, fmt.Errorf("regions: %w", err)
	}
	return parseRegions(string(text))
}

func parseRegions(text string) ([]Region, error) {
	var regions []Region
	for i, line := range linesOf(text) {
		fields := strings.Fields(line)
		if len(fields) != 3 {
			return nil, fmt.Errorf("regions:%d: %q is not a marker, a name and operations", i+1, line)
		}
		number, err := strconv.Atoi(fields[0])
		if err != nil || number < 1 || number > 63 {
			return nil, fmt.Errorf("regions:%d: marker %q", i+1, fields[0])
		}
		if !utf8.ValidString(fields[1]) || strings.ContainsFunc(fields[1], unicode.IsControl) {
			return nil, fmt.Errorf("regions:%d: %q is no name", i+1, fields[1])
		}
		operations, err := strconv.ParseInt(fields[2], 10, 64)
		if err != nil || operations < 1 {
			return nil, fmt.Errorf("regions:%d: %q operations", i+1, fields[2])
		}
		regions = append(regions, Region{Marker: number, Name: fields[1], Operations: operations})
	}
	if len(regions) == 0 {
		return nil, errors.New("regions: none")
	}
	return regions, nil
}

func linesOf(text string) []string {
	if text = strings.TrimSuffix(text, "\n"); text == "" {
		return nil
	}
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimSuffix(line, "\r")
	}
	return lines
}
