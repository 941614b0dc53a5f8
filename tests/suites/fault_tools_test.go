// SPDX-License-Identifier: Apache-2.0

//go:build lab

package suites

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/kernelbroker/kernelbroker/tests/lab"
)

// Fault injection for the suites.

// freeze stops a node's agent, as a hang would.
func (f *faults) freeze(nodes ...lab.Node) {
	f.t.Helper()
	f.onNodes("kill -STOP $(pidof kernel-broker-agent)", nodes)
}

func (f *faults) onNodes(script string, nodes []lab.Node) {
	f.t.Helper()
	for _, n := range nodes {
		if r, err := n.Shell(f.ctx, script); err != nil || r.Exit != 0 {
			f.t.Fatalf("node %s: %s: exit %d %s %v", n.Name(), script, r.Exit, r.Stderr, err)
		}
	}
}

// processes finds processes on the front-end by a word of their command line.
func (f *faults) processes(word string) []int {
	f.t.Helper()
	all, err := f.Processes()
	if err != nil {
		f.t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(pid int) bool {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		argv := strings.Split(string(line), "\x00")
		return err != nil || argv[0] != word
	})
}

// brokerProgram is its argv[0] in the lab.
const brokerProgram = "/usr/local/bin/kernel-broker"

// parent is a process's parent, 0 if it has ended.
func parent(pid int) int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	var ppid int
	for line := range strings.Lines(string(text)) {
		if n, _ := fmt.Sscanf(line, "PPid: %d", &ppid); n == 1 {
			return ppid
		}
	}
	return 0
}

// logSize is where the broker's log ends now.
func (f *faults) logSize() int64 {
	f.t.Helper()
	st, err := os.Stat(f.FrontLog("kernel-broker/broker.log"))
	if err != nil {
		f.t.Fatal(err)
	}
	return st.Size()
}

// logged waits for a pattern in the broker's log after an offset and returns its position.
func (f *faults) logged(from int64, pattern string) int64 {
	f.t.Helper()
	what := regexp.MustCompile(pattern)
	end := time.Now().Add(switchLimit)
	for {
		text, err := os.ReadFile(f.FrontLog("kernel-broker/broker.log"))
		if err != nil {
			f.t.Fatal(err)
		}
		from = min(from, int64(len(text)))
		if at := what.FindIndex(text[from:]); at != nil {
			return from + int64(at[1])
		}
		if time.Now().After(end) {
			f.t.Fatalf("%q is not in the broker's log after %v", pattern, switchLimit)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// killBroker ends the broker as a crash does, within milliseconds.
func (f *faults) killBroker() {
	f.t.Helper()
	// A child that the broker has just forked has its name until the exec, and may have ended.
	pids := f.processes(brokerProgram)
	all := slices.Clone(pids)
	pids = slices.DeleteFunc(pids, func(pid int) bool {
		above := parent(pid)
		return above == 0 || slices.Contains(all, above)
	})
	if len(pids) != 1 {
		f.t.Fatalf("brokers: %v", pids)
	}
	if err := syscall.Kill(pids[0], syscall.SIGKILL); err != nil {
		f.t.Fatalf("broker: %v", err)
	}
	f.wait(time.Minute, "the broker's end", func() bool { return len(f.processes(brokerProgram)) == 0 })
}

// crashBroker kills the broker as soon as its log contains the pattern, and restarts it. A line is logged when a change
// is recorded and before it is acted on. It returns the position of that line, not of the log's end: on a loaded machine
// the broker continues until the signal arrives, and does not repeat those lines.
func (f *faults) crashBroker(from int64, pattern string) int64 {
	f.t.Helper()
	at := f.logged(from, pattern)
	f.killBroker()
	f.startBroker()
	return at
}

func (f *faults) startBroker() {
	f.t.Helper()
	if err := f.Broker().Start(f.ctx); err != nil {
		f.t.Fatal(err)
	}
}

// client changes a setting of the hooks, and returns how to change it back.
func (f *faults) client(old, replacement string) (undo func()) {
	f.t.Helper()
	file := filepath.Join(f.Dir(), "share/conf/kernel-broker/client.yaml")
	before, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(before), old) {
		f.t.Fatalf("client.yaml without %q: %v", old, err)
	}
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			f.t.Fatal(err)
		}
	}
	write(strings.Replace(string(before), old, replacement, 1))
	return func() { write(string(before)) }
}
