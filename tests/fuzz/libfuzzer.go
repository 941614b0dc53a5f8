package fuzz

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Targets in C are files tests/fuzz/fuzz_NAME.c of a part that has a Makefile,
// which makes libfuzzer_NAME of it. Seeds are in tests/fuzz/seeds/NAME, where an
// input that fails goes too: the part's own tests replay all that is there.
var definitionC = regexp.MustCompile(`^(?:(.+)/)?tests/fuzz/fuzz_(\w+)\.c$`)

func (t Target) inC() bool { return strings.HasSuffix(t.file, ".c") }

// targetInC returns the target of a file; of a file that is none it is zero.
func targetInC(within string) Target {
	m := definitionC.FindStringSubmatch(filepath.ToSlash(within))
	if m == nil {
		return Target{}
	}
	return Target{Package: m[1], Name: m[2], file: within}
}

func (t Target) seeds() string { return filepath.Join(t.Package, "tests/fuzz/seeds", t.Name) }

func (o Options) buildC(ctx context.Context, t Target) (string, error) {
	folder := filepath.Join(o.Work, strings.ReplaceAll(t.Package, "/", "-"))
	cmd := exec.CommandContext(ctx, "make", "-s", "--no-print-directory", "-C", t.Package, "out="+folder, "FUZZ="+t.Name, "libfuzzer")
	cmd.Dir = o.Root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("fuzz target %s: %w\n%s", t, err, out)
	}
	return filepath.Join(folder, "libfuzzer_"+t.Name), nil
}

func (o Options) argumentsC(t Target, need time.Duration, corpus string) []string {
	seeds := filepath.Join(o.Root, t.seeds())
	return []string{
		"-max_total_time=" + strconv.Itoa(int(need.Seconds())), "-print_final_stats=1", "-artifact_prefix=" + seeds + "/", corpus, seeds,
	}
}

var (
	progressC = regexp.MustCompile(`^stat::number_of_executed_units:\s+(\d+)`)
	newC      = regexp.MustCompile(`^stat::new_units_added:\s+(\d+)`)
	foundC    = regexp.MustCompile(`^#\d+\s+NEW `)
	writtenC  = regexp.MustCompile(`Test unit written to (\S+)`)
)

// readC takes in a line of libFuzzer's, and reports whether it was one.
func (r *Result) readC(line, root string) bool {
	if m := progressC.FindStringSubmatch(line); m != nil {
		r.Execs, _ = strconv.ParseUint(m[1], 10, 64)
	} else if m := newC.FindStringSubmatch(line); m != nil {
		r.New, _ = strconv.Atoi(m[1])
	} else if foundC.MatchString(line) {
		r.found = time.Now()
	} else if m := writtenC.FindStringSubmatch(line); m != nil {
		if within, err := filepath.Rel(root, m[1]); err == nil {
			r.Input = filepath.ToSlash(within)
		}
	}
	return strings.HasPrefix(line, "#") || strings.HasPrefix(line, "INFO: ") || strings.HasPrefix(line, "stat::")
}

// codeC is a digest of the target and of the part's sources.
func codeC(root string, t Target) (string, error) {
	files := []string{filepath.Join(root, t.file)}
	for _, pattern := range []string{"src/*.c", "src/*.h", "tests/*.h", "tests/fuzz/*.h"} {
		found, err := filepath.Glob(filepath.Join(root, t.Package, pattern))
		if err != nil {
			return "", err
		}
		files = append(files, found...)
	}
	slices.Sort(files)
	digest := sha256.New()
	for _, file := range files {
		if err := addFile(digest, file); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(digest.Sum(nil)[:8]), nil
}
