// SPDX-License-Identifier: Apache-2.0

package ocean

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// script runs the model in the node's memory, and leaves in the user's home: what it
// printed, the digests of its fields, its times and the kernel's release.
const script = `#!/bin/bash
#SBATCH --output=%x.log --exclusive --nodes=1
set -e
run=/tmp/ocean.$SLURM_JOB_ID
mkdir $run
trap 'rm -rf $run' EXIT
cp ~/ocean/* $run
cd $run
TIMEFORMAT='%R %U %S'
{ time ./` + program + ` >output.txt 2>errors.txt; } 2>~/$SLURM_JOB_NAME.times || { tail -5 errors.txt output.txt; exit 1; }
[ ! -e STDOUT.0000 ] || cat STDOUT.0000 >>output.txt
cp output.txt ~/$SLURM_JOB_NAME.output
find . -name '*.data' | sort | xargs -r sha256sum >~/$SLURM_JOB_NAME.fields
uname -r >~/$SLURM_JOB_NAME.release
`

// Outcome of one job.
type Outcome struct {
	Release string `json:"release"`
	// Elapsed, User and System are seconds of the model.
	Elapsed float64 `json:"elapsed_seconds"`
	User    float64 `json:"user_seconds"`
	System  float64 `json:"system_seconds"`
	// Monitor is the number of lines that the model printed of its state, Fields
	// that of the files that it wrote.
	Monitor int `json:"monitor_lines"`
	Fields  int `json:"field_files"`

	said string // the monitor's lines and the fields' digests
}

// outcome reads what a job left in the user's home.
func outcome(home, job string) (Outcome, error) {
	var o Outcome
	read := func(kind string) string { return filepath.Join(home, job+"."+kind) }
	release, err := os.ReadFile(read("release"))
	if err != nil {
		return Outcome{}, fmt.Errorf("job %s: %w", job, err)
	}
	o.Release = strings.TrimSpace(string(release))
	times, err := os.ReadFile(read("times"))
	if err == nil {
		_, err = fmt.Sscan(string(times), &o.Elapsed, &o.User, &o.System)
	}
	if err != nil {
		return Outcome{}, fmt.Errorf("job %s: times: %w", job, err)
	}
	file, err := os.Open(read("output"))
	if err != nil {
		return Outcome{}, fmt.Errorf("job %s: %w", job, err)
	}
	monitor, err := monitorLines(file)
	if err = errors.Join(err, file.Close()); err != nil {
		return Outcome{}, fmt.Errorf("job %s: %w", job, err)
	}
	fields, err := os.ReadFile(read("fields"))
	if err != nil {
		return Outcome{}, fmt.Errorf("job %s: %w", job, err)
	}
	o.Monitor, o.Fields = len(monitor), strings.Count(string(fields), "\n")
	if o.Monitor == 0 || o.Fields == 0 {
		return Outcome{}, fmt.Errorf("job %s: %d lines of the monitor and %d fields: the model did not run to its end", job, o.Monitor, o.Fields)
	}
	o.said = strings.Join(monitor, "\n") + "\n" + string(fields)
	return o, nil
}

// monitorLines are those by which MITgcm's own tests compare runs, without what
// stands before them, which may be the process's number.
func monitorLines(from io.Reader) ([]string, error) {
	var all []string
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if _, said, ok := strings.Cut(lines.Text(), "%MON "); ok {
			all = append(all, said)
		}
	}
	return all, lines.Err()
}

// differs says in which line two outcomes are not the same, "" where they are.
func (o Outcome) differs(other Outcome) string {
	mine, others := strings.Split(o.said, "\n"), strings.Split(other.said, "\n")
	for i, line := range mine {
		if i >= len(others) || line != others[i] {
			return fmt.Sprintf("line %d: %q", i+1, line)
		}
	}
	if len(others) > len(mine) {
		return fmt.Sprintf("%d lines less", len(others)-len(mine))
	}
	return ""
}
