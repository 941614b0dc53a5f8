// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/config"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/nodestate"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

// fakeNode is a node made of files: its own /proc and /sys, a kexec that is a
// shell script and "boots" by rewriting those, and a slurmd that only sleeps.
type fakeNode struct {
	t      *testing.T
	dir    string
	config config.Config
	logs   *lockedBuffer
	end    func() error
	result chan error // of the agent that up started last
	boots  int
}

// kexecScript loads by copying, and boots by writing the new kernel's files. An image's first line is its build id.
// Files named like faults make it fail, hold.load holds a load up; kexec.log records its arguments.
const kexecScript = `#!/bin/sh
cd "$DIR" || exit 9
echo "$*" >>kexec.log
op= image= line= initrd=
while [ $# -gt 0 ]; do
	case $1 in
	-l) op=load image=$2; shift ;;
	-u) op=unload ;;
	-e) op=execute ;;
	--command-line=*) line=${1#*=} ;;
	--initrd=*) initrd=${1#*=} ;;
	esac
	shift
done
case $op in
load)
	while [ -e hold.load ]; do sleep 0.02; done
	[ ! -e fault.load ] || { cat fault.load >&2; exit 255; }
	[ -z "$initrd" ] || [ -r "$initrd" ] || exit 8
	cp "$image" loaded.image && printf '%s\n' "$line" >loaded.line || exit 7
	[ -e fault.silent ] || echo 1 >sys/kernel/kexec_loaded
	;;
unload) echo 0 >sys/kernel/kexec_loaded ;;
execute)
	grep -q 1 sys/kernel/kexec_loaded || { echo "nothing loaded" >&2; exit 1; }
	[ ! -e fault.execute ] || exit 1
	read -r pid <slurmd.pid
	# One look: a process that is dead may be gone in the next moment.
	case $(cat "/proc/$pid/stat" 2>/dev/null) in
	*'(slurmd) Z'*) ;;
	*'(slurmd) '*) echo "slurmd was up" >>violations ;;
	esac
	touch executed
	exec sleep 1000
	;;
esac
`

const startScript = `#!/bin/sh
cd "$DIR" || exit 9
echo "start $(date +%s.%N)" >>slurmd.log
[ ! -e fault.slurmd ] || { echo "no munge" >&2; exit 1; }
bin/slurmd 1000 >/dev/null 2>&1 &
echo $! >slurmd.pid
`

// stopScript ends slurmd; a file holds it up.
const stopScript = `#!/bin/sh
cd "$DIR" || exit 9
while [ -e hold.stop ]; do sleep 0.02; done
read -r pid <slurmd.pid && kill "$pid" 2>/dev/null
exit 0
`

func newFakeNode(t *testing.T, broker string) *fakeNode {
	t.Helper()
	n := &fakeNode{t: t, dir: t.TempDir(), logs: &lockedBuffer{}}
	n.script("kexec", kexecScript)
	n.script("slurmd-start", startScript)
	n.script("slurmd-stop", stopScript)
	n.copySleep()
	n.file("proc/meminfo", "MemTotal: 500000 kB\n")
	n.file("proc/stat", "btime 1790000000\n")
	n.file("proc/sys/kernel/osrelease", "6.1.0-stock\n")
	n.file("proc/self/mountinfo", "22 1 254:0 / / rw - ext4 /dev/vda rw\n")
	n.file("proc/cmdline", "root=/dev/vda ro quiet console=ttyS0\n")
	n.file("sys/devices/system/cpu/online", "0-7\n")
	for cpu := range 8 {
		dir := fmt.Sprintf("sys/devices/system/cpu/cpu%d/topology/", cpu)
		n.file(dir+"core_cpus_list", fmt.Sprintf("%d,%d\n", cpu%4, cpu%4+4))
		n.file(dir+"physical_package_id", "0\n")
	}
	n.booted(stockBuild)
	c, err := config.Default()
	if err != nil {
		t.Fatal(err)
	}
	c.Node, c.Broker = "n1", broker
	c.TLS.Mode = config.TLSNone
	c.Cache = config.Cache{Dir: n.path("cache"), MaxBytes: 64 << 20}
	c.Slurmd.Start = []string{n.path("slurmd-start")}
	c.Slurmd.FirstStart = nil
	c.Slurmd.Stop = []string{n.path("slurmd-stop")}
	c.Slurmd.PIDFile, c.Slurmd.MarkFile = n.path("slurmd.pid"), n.path("run/slurmd.mark")
	c.Kexec.Program = n.path("kexec")
	c.Socket, c.NodeState, c.Snapshot = n.path("run/agent.sock"), n.path("run/node.state"), n.path("catalog.snapshot")
	c.BrokerGrace = time.Minute
	c.Proc, c.Sys = n.path("proc"), n.path("sys")
	n.config = c
	t.Cleanup(n.down)
	return n
}

const stockBuild = "00aa00aa00aa00aa"

func (n *fakeNode) path(name string) string { return filepath.Join(n.dir, name) }

func (n *fakeNode) file(name, content string) {
	n.t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(n.path(name)), 0o755), os.WriteFile(n.path(name), []byte(content), 0o644)); err != nil {
		n.t.Fatal(err)
	}
}

func (n *fakeNode) script(name, text string) {
	n.t.Helper()
	n.file(name, strings.Replace(text, "\ncd \"$DIR\"", "\nDIR="+n.dir+"\ncd \"$DIR\"", 1))
	if err := os.Chmod(n.path(name), 0o755); err != nil {
		n.t.Fatal(err)
	}
}

// copySleep makes a process that is called slurmd and ends with SIGTERM.
func (n *fakeNode) copySleep() {
	n.t.Helper()
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		n.t.Fatal(err)
	}
	raw, err := os.ReadFile(sleep)
	if err != nil {
		n.t.Fatal(err)
	}
	n.file("bin/slurmd", string(raw))
	if err := os.Chmod(n.path("bin/slurmd"), 0o755); err != nil {
		n.t.Fatal(err)
	}
}

// booted simulates a boot of a kernel with this build id; files in /run are gone, and so is slurmd.
func (n *fakeNode) booted(build string) {
	n.t.Helper()
	n.boots++
	id, err := hex.DecodeString(build)
	if err != nil {
		n.t.Fatal(err)
	}
	note := binary.NativeEndian.AppendUint32(nil, 4)
	note = binary.NativeEndian.AppendUint32(note, uint32(len(id)))
	note = binary.NativeEndian.AppendUint32(note, 3)
	note = append(append(note, "GNU\x00"...), id...)
	n.file("sys/kernel/notes", string(note))
	n.file("sys/kernel/kexec_loaded", "0\n")
	n.file("proc/sys/kernel/random/boot_id", fmt.Sprintf("00000000-0000-4000-8000-%012d\n", n.boots))
	n.killSlurmd()
	if err := os.RemoveAll(n.path("run")); err != nil {
		n.t.Fatal(err)
	}
}

// kexecs waits for the kexec, ends the agent and boots the loaded kernel.
func (n *fakeNode) kexecs() {
	n.t.Helper()
	n.until("the kexec", func() bool { return n.exists("executed") })
	n.stop()
	if err := os.Remove(n.path("executed")); err != nil {
		n.t.Fatal(err)
	}
	build, _, _ := strings.Cut(n.read("loaded.image"), "\n")
	n.file("proc/cmdline", n.read("loaded.line"))
	n.file("proc/sys/kernel/osrelease", "6.1.0-mitgcm\n")
	n.booted(build)
}

// power is a reset: firmware boots the stock kernel.
func (n *fakeNode) power() {
	n.file("proc/cmdline", "root=/dev/vda ro quiet console=ttyS0\n")
	n.booted(stockBuild)
}

func (n *fakeNode) remove(name string) {
	n.t.Helper()
	if err := os.Remove(n.path(name)); err != nil {
		n.t.Error(err)
	}
}

func (n *fakeNode) exists(name string) bool {
	_, err := os.Stat(n.path(name))
	return err == nil
}

func (n *fakeNode) read(name string) string {
	n.t.Helper()
	raw, err := os.ReadFile(n.path(name))
	if err != nil {
		n.t.Fatal(err)
	}
	return string(raw)
}

func (n *fakeNode) slurmdPID() int {
	raw, err := os.ReadFile(n.path("slurmd.pid"))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil {
		return 0
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil || !strings.Contains(string(stat), "(slurmd)") || strings.Contains(string(stat), ") Z") {
		return 0
	}
	return pid
}

func (n *fakeNode) killSlurmd() {
	if pid := n.slurmdPID(); pid > 0 {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
	}
	n.until("slurmd's end", func() bool { return n.slurmdPID() == 0 })
}

func (n *fakeNode) starts() int {
	if !n.exists("slurmd.log") {
		return 0
	}
	return strings.Count(n.read("slurmd.log"), "start")
}

func (n *fakeNode) until(what string, ok func() bool) {
	n.t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			n.t.Fatalf("waited in vain for %s; the agent's log:\n%s", what, n.logs)
		}
	}
}

// up runs an agent in this process.
func (n *fakeNode) up() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	n.result = done
	go func() { done <- run(ctx, n.config, slog.New(slog.NewTextHandler(n.logs, nil))) }()
	n.end = func() error {
		cancel()
		return <-done
	}
}

// stop ends the agent the friendly way.
func (n *fakeNode) stop() {
	if n.end == nil {
		return
	}
	if err := n.end(); err != nil {
		n.t.Errorf("the agent ended with: %v", err)
	}
	n.end = nil
}

func (n *fakeNode) down() {
	n.stop()
	n.killSlurmd()
	if n.exists("violations") {
		n.t.Errorf("rules were broken: %s", n.read("violations"))
	}
	if n.t.Failed() {
		n.t.Logf("the agent's log:\n%s", n.logs)
	}
}

func (n *fakeNode) state() nodestate.State {
	n.t.Helper()
	s, _, err := nodestate.Read(n.config.NodeState)
	if err != nil {
		n.t.Fatal(err)
	}
	return s
}

// kernelFile makes an image of a build id, and where the broker has it.
func kernelFile(b *fakeBroker, build string, size int) (digest string, content []byte) {
	content = append([]byte(build+"\n"), bytes.Repeat([]byte("kernel "), size/7)...)
	sum := sha256.Sum256(content)
	digest = "sha256:" + hex.EncodeToString(sum[:])
	b.mu.Lock()
	defer b.mu.Unlock()
	b.files[digest] = content
	return digest, content
}

const mitgcmBuild = "5f0c5f0c5f0c5f0c"

func mitgcm(b *fakeBroker) *api.KernelSpec {
	digest, content := kernelFile(b, mitgcmBuild, 100_000)
	return &api.KernelSpec{
		Profile: "mitgcm", Version: 3, ImageDigest: digest, ImageSize: uint64(len(content)),
		Arguments: []string{"nohz=off"}, BuildId: mitgcmBuild, Release: "6.1.0-mitgcm", Architecture: "x86_64", Drivers: []string{"ext4"},
	}
}

func token(n int) string { return fmt.Sprintf("%032x", n) }

// desiredStock is the desired state of a serving node on stock.
func desiredStock(start uint64) *api.Desired {
	return &api.Desired{Attested: true, RunningProfile: kb.StockProfile, RunningVersion: 1, SlurmdAllowed: true, SlurmdStart: start}
}

// desiredSwitch is a stock node's desired state with a kernel.
func desiredSwitch(k *api.KernelSpec, tokenNumber int) *api.Desired {
	return &api.Desired{
		Kernel: k, Token: token(tokenNumber), Attested: true, RunningProfile: kb.StockProfile, RunningVersion: 1, SlurmdStart: 1,
	}
}

// lockedBuffer accepts logs from any goroutine.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
