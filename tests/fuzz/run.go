package fuzz

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Options of a run.
type Options struct {
	// Root of the repository, Corpus and Work folders, which hold the archives
	// and what is made on the way.
	Root, Corpus, Work string
	// Time for each target.
	Time time.Duration
	// Go is the go command.
	Go string
	// Log gets progress.
	Log io.Writer
}

// Result of one target.
type Result struct {
	Target
	Seconds float64 `json:"seconds"`
	Execs   uint64  `json:"execs"`
	// New inputs were interesting; Kept are in the archive.
	New  int `json:"new"`
	Kept int `json:"kept"`
	// Failed says what was found wrong, and Input where what shows it is.
	Failed string `json:"failed,omitempty"`
	Input  string `json:"input,omitempty"`
}

// Run runs the targets in turn. What a target finds is in its result; an error
// is something that kept targets from running.
func Run(ctx context.Context, o Options, targets []Target) ([]Result, error) {
	var results []Result
	program, built := "", ""
	for n, t := range targets {
		if t.Package != built {
			var err error
			if program, err = o.build(ctx, t.Package); err != nil {
				return results, err
			}
			built = t.Package
		}
		_, _ = fmt.Fprintf(o.Log, "[%d/%d] %s\n", n+1, len(targets), t)
		result, err := o.fuzz(ctx, t, program)
		if err != nil {
			return results, fmt.Errorf("%s: %w", t, err)
		}
		results = append(results, result)
	}
	return results, nil
}

// build makes a package's test program, instrumented.
func (o Options) build(ctx context.Context, folder string) (string, error) {
	program := filepath.Join(o.Work, strings.ReplaceAll(folder, "/", "-")+".test")
	cmd := exec.CommandContext(ctx, o.Go, "test", "-c", "-fuzz=.", "-o", program, "./"+folder)
	cmd.Dir = o.Root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("test program of %s: %w\n%s", folder, err, out)
	}
	return program, nil
}

// ended is what a target gets to end by itself, after its time.
const ended = 2 * time.Minute

func (o Options) fuzz(ctx context.Context, t Target, program string) (Result, error) {
	r := Result{Target: t}
	cache := filepath.Join(o.Work, "cache", t.Package)
	archive := filepath.Join(o.Corpus, t.Package, t.Name+".tar.gz")
	if err := restore(archive, filepath.Join(cache, t.Name)); err != nil {
		return r, err
	}
	ctx, cancel := context.WithTimeout(ctx, o.Time+ended)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "-test.run=^$", "-test.fuzz=^"+t.Name+"$", "-test.fuzztime="+o.Time.String(),
		"-test.fuzzcachedir="+cache, "-test.timeout=0", "-test.paniconexit0")
	cmd.Dir = filepath.Join(o.Root, t.Package)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.StdoutPipe()
	if err != nil {
		return r, err
	}
	cmd.Stderr = cmd.Stdout
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		return r, err
	}
	said := r.read(out, o.Log)
	failure := cmd.Wait()
	r.Seconds = time.Since(begin).Seconds()
	var exit *exec.ExitError
	switch {
	case failure == nil:
	case errors.As(failure, &exit) && ctx.Err() == nil:
		r.Failed = said
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		r.Failed = fmt.Sprintf("did not end within %v of its time: %s", ended, said)
	default:
		return r, failure
	}
	r.Kept, err = keep(filepath.Join(cache, t.Name), archive)
	return r, err
}

var (
	progress = regexp.MustCompile(`^fuzz: elapsed: \S+, execs: (\d+) .*new interesting: (\d+)`)
	written  = regexp.MustCompile(`Failing input written to (\S+)`)
)

// read follows what a target says, and returns the end of what is no progress.
func (r *Result) read(out io.Reader, log io.Writer) string {
	const most = 4000
	said := ""
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		line := lines.Text()
		if m := progress.FindStringSubmatch(line); m != nil {
			r.Execs, _ = strconv.ParseUint(m[1], 10, 64)
			r.New, _ = strconv.Atoi(m[2])
			_, _ = fmt.Fprintln(log, "    "+strings.TrimPrefix(line, "fuzz: "))
			continue
		}
		if m := written.FindStringSubmatch(line); m != nil {
			r.Input = filepath.ToSlash(filepath.Join(r.Package, m[1]))
		}
		if strings.HasPrefix(line, "fuzz: ") || line == "PASS" {
			continue
		}
		if said += line + "\n"; len(said) > most {
			said = said[len(said)-most:]
		}
	}
	return strings.TrimSpace(said)
}
