// SPDX-License-Identifier: Apache-2.0

package authcost

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/perf/benchfmt"
)

// Options of a run.
type Options struct {
	// Root of the repository, Go the go command.
	Root, Go string
	// Rounds of all calls, each for this long.
	Rounds int
	Time   time.Duration
}

const (
	benchmark = "Authorisation"
	// unit of the benchmark's own figure: the median of all calls of a round.
	unit = "median-us/op"
)

// Run measures. Progress gets a line for each round.
func Run(ctx context.Context, o Options, progress io.Writer) (Result, error) {
	folder, err := os.MkdirTemp("", "authcost-")
	if err != nil {
		return Result{}, err
	}
	defer func() { _ = os.RemoveAll(folder) }() // what is left there harms nobody
	program := filepath.Join(folder, "rpc.test")
	within := filepath.Join(o.Root, "kernel-broker/rpc")
	if _, err := command(ctx, o.Root, o.Go, "test", "-c", "-o", program, "./kernel-broker/rpc"); err != nil {
		return Result{}, err
	}
	var all []Sample
	for round := range o.Rounds {
		begin := time.Now()
		out, err := command(ctx, within, program, "-test.run=^$", "-test.bench=^Benchmark"+benchmark+"$", "-test.benchtime="+o.Time.String())
		if err != nil {
			return Result{}, err
		}
		samples, err := Parse(bytes.NewReader(out))
		if err != nil {
			return Result{}, err
		}
		all = append(all, samples...)
		_, _ = fmt.Fprintf(progress, "round %d of %d: %.0f s\n", round+1, o.Rounds, time.Since(begin).Seconds())
	}
	return Judge(all)
}

func command(ctx context.Context, dir, program string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w\n%s%s", filepath.Base(program), strings.Join(args, " "), err, out, said.Bytes())
	}
	return out, nil
}

// Parse takes the samples of what the benchmark printed, by the parts of its
// name: Authorisation/call=read/way=socket-2.
func Parse(in io.Reader) ([]Sample, error) {
	var samples []Sample
	reader := benchfmt.NewReader(in, "the benchmark")
	for reader.Scan() {
		switch record := reader.Result().(type) {
		case *benchfmt.SyntaxError:
			return nil, record
		case *benchfmt.Result:
			s, err := sampleOf(record)
			if err != nil {
				return nil, err
			}
			samples = append(samples, s)
		}
	}
	if err := reader.Err(); err != nil {
		return nil, err
	}
	if len(samples) == 0 {
		return nil, errors.New("the benchmark printed no figure")
	}
	return samples, nil
}

func sampleOf(record *benchfmt.Result) (Sample, error) {
	var s Sample
	_, parts := record.Name.Parts()
	for _, part := range parts {
		key, value, _ := strings.Cut(strings.TrimPrefix(string(part), "/"), "=")
		switch key {
		case "call":
			s.Call = value
		case "way":
			s.Way = value
		}
	}
	var ok bool
	if s.Microseconds, ok = record.Value(unit); !ok || s.Call == "" || s.Way == "" {
		return s, fmt.Errorf("benchmark %s has no call, way and %s", record.Name, unit)
	}
	s.Calls = record.Iters
	return s, nil
}
