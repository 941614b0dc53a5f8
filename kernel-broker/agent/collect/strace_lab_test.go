// SPDX-License-Identifier: Apache-2.0

//go:build lab

package collect_test

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect/files"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
)

// account is what was done to one or more files.
type account struct{ Opens, Reads, ReadBytes, Writes, WriteBytes, Seeks uint64 }

func (a *account) add(b account) {
	a.Opens += b.Opens
	a.Reads += b.Reads
	a.ReadBytes += b.ReadBytes
	a.Writes += b.Writes
	a.WriteBytes += b.WriteBytes
	a.Seeks += b.Seeks
}

// stracesTheReplay observes one run of the replay with io and with Debian's strace: they agree on every file to the last
// call and byte, and with the program's own report.
func stracesTheReplay(t *testing.T) {
	j := newJob(t, nil, files.Collector{})
	folder, log := t.TempDir(), filepath.Join(t.TempDir(), "strace.log")
	// strace stays outside of the job, whose files it would add to. The shell's activity is before the execve.
	cmd := exec.Command("strace", "-y", "-s", "0", "-o", log,
		"-e", "trace=execve,openat,read,write,pread64,pwrite64,readv,writev,preadv,pwritev,lseek",
		"sh", "-c", `echo $$ >"$0/cgroup.procs" && exec "$@"`, j.step(), "mitgcm-io", "--io-scale", "40", "--dir", folder, "--json")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v: %s", cmd.Args, err, out)
	}
	var program said
	if err := json.Unmarshal(out, &program); err != nil || !program.OK {
		t.Fatalf("the replay said %s: %v", out, err)
	}
	collected := accounts(j.result().IO)
	// The write that moved the shell into the job ended inside of it.
	delete(collected, "cgroup.procs")
	traced := readStrace(t, log, "mitgcm-io")
	for path, want := range traced {
		if got := collected[path]; got != want {
			t.Errorf("%s: io has %+v, strace %+v", path, got, want)
		}
	}
	for path, got := range collected {
		if _, known := traced[path]; !known && got.Reads+got.Writes+got.Seeks > 0 {
			t.Errorf("%s: io has %+v, strace nothing", path, got)
		}
	}
	// Patterns are identified by name here and by behaviour in the report; the input is created with pwrite, which the
	// program does not count.
	for name, ending := range map[string]string{"meta": ".meta", "data": ".data", "log": ".log", "bin": ".bin"} {
		byCollector, filesSeen := sum(collected, ending)
		byStrace, _ := sum(traced, ending)
		p := program.Patterns[name]
		t.Logf("%s: program %+v; strace %+v; io %+v in %d files", name, p, byStrace, byCollector, filesSeen)
		bytes, writes := byCollector.WriteBytes, byCollector.Writes
		if name == "bin" {
			bytes, writes = byCollector.ReadBytes, 0
		}
		if filesSeen != p.Files || byCollector.Reads != p.Reads || writes != p.Writes || byCollector.Seeks != p.Seeks || bytes != p.Bytes {
			t.Errorf("%s: io has %+v in %d files, the program reports %+v", name, byCollector, filesSeen, p)
		}
	}
}

func accounts(io *profiling.IO) map[string]account {
	all := map[string]account{}
	for _, f := range io.Files {
		a := all[f.Path]
		a.add(account{f.Opens, f.Read.Calls, f.Read.Bytes, f.Write.Calls, f.Write.Bytes, f.Seeks})
		all[f.Path] = a
	}
	return all
}

// sum of the files with this ending.
func sum(all map[string]account, ending string) (whole account, count uint64) {
	for path, a := range all {
		if strings.HasSuffix(path, ending) {
			whole.add(a)
			count++
		}
	}
	return whole, count
}

var (
	onFile = regexp.MustCompile(`^(\w+)\(\d+<(/[^>]*)>.* = (-?\d+)`)
	opens  = regexp.MustCompile(`^openat\(.* = \d+<(/[^>]*)>$`)
)

// readStrace sums up a program's file activity from its execve on.
func readStrace(t *testing.T, path, program string) map[string]account {
	t.Helper()
	log, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	all := map[string]account{}
	began := false
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		line := lines.Text()
		if strings.HasPrefix(line, "execve(") && strings.Contains(line, program) && strings.HasSuffix(line, " = 0") {
			began = true
		}
		if !began {
			continue
		}
		if open := opens.FindStringSubmatch(line); open != nil {
			a := all[open[1]]
			a.Opens++
			all[open[1]] = a
		} else if call := onFile.FindStringSubmatch(line); call != nil && call[1] != "openat" {
			a := all[call[2]]
			a.add(done(t, line, call[1], call[3]))
			all[call[2]] = a
		}
	}
	if err := lines.Err(); err != nil || len(all) == 0 {
		t.Fatalf("%s: %d files, %v", path, len(all), err)
	}
	return all
}

// done is the effect of one call.
func done(t *testing.T, line, call, result string) account {
	t.Helper()
	moved, err := strconv.ParseInt(result, 10, 64)
	if err != nil || moved < 0 {
		t.Fatalf("strace: %q: no number of bytes or place", line)
	}
	switch {
	case call == "lseek":
		return account{Seeks: 1}
	case strings.Contains(call, "read"):
		return account{Reads: 1, ReadBytes: uint64(moved)}
	default:
		return account{Writes: 1, WriteBytes: uint64(moved)}
	}
}
