// SPDX-License-Identifier: Apache-2.0

//go:build lab

package collect_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect/files"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect/syscalls"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
)

// Two jobs at once see each their own.
func twoJobs(t *testing.T) {
	first, second := newJob(t, nil, steady...), newJob(t, nil, steady...)
	other := first.command("known", "calls", "3000")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	second.does("known", "calls", "2000")
	if err := other.Wait(); err != nil {
		t.Fatal(err)
	}
	first.call(first.result(), "getppid", 3000)
	second.call(second.result(), "getppid", 2000)
}

func figuresMeanwhile(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "live.sock")
	j := newJob(t, func(r *collect.Request) { r.Socket = socket }, steady...)
	busy := j.command("known", "busy", "0", "6000")
	if err := busy.Start(); err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	lines := bufio.NewReader(conn)
	var last profiling.Live
	count := 0
	for ; !last.Ended; count++ {
		line, err := lines.ReadBytes('\n')
		if err == nil {
			err = json.Unmarshal(line, &last)
		}
		if err != nil {
			t.Fatalf("line %d: %v", count, err)
		}
		if count == 1 && last.Result.Nodes[0].JobNS == 0 {
			t.Errorf("second line has no CPU time: %s", line)
		}
	}
	if err := busy.Wait(); err != nil {
		t.Fatal(err)
	}
	if count < 3 || last.Result.Noise == nil || last.Result.Syscalls == nil {
		t.Errorf("%d lines, the last %+v", count, last)
	}
	j.result()
	if _, err := os.Stat(socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
}

// The disk has space for the sums, but not for the lists.
func diskFull(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("small", dir, "tmpfs", 0, "size=128k"); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	}()
	j := newJob(t, func(r *collect.Request) { r.Folder = dir }, files.Collector{}, syscalls.Collector{})
	j.does("known", "files", "1000", t.TempDir())
	result, err := j.run.Result(t.Context())
	if why := others(result); err != nil || len(why) != 1 || why[0].Why != collect.WhySpace {
		t.Fatalf("partial %+v, %v", result.Partial, err)
	}
	content, err := os.ReadFile(filepath.Join(dir, kb.ResultFile))
	if err != nil {
		t.Fatal(err)
	}
	read, err := profiling.ParseResult(content)
	if err != nil || len(read.IO.Files) != 0 || read.IO.FilesLeftOut == 0 || read.Syscalls.Named("fsync").Count != 1000 {
		t.Errorf("%v: result %s", err, content)
	}
}

// asAgent makes this program an agent that collects until it is killed.
const asAgent = "KERNEL_BROKER_TEST_AGENT"

func init() {
	folder := os.Getenv(asAgent)
	if folder == "" {
		return
	}
	run, err := collect.Start(collect.Request{Job: 1, Node: "n1", Cgroup: "/sys/fs/cgroup/killed", Folder: folder},
		steady, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	if err != nil {
		panic(err)
	}
	if _, err := os.Stdout.WriteString("started\n"); err != nil {
		panic(err)
	}
	<-run.Ended()
	os.Exit(0)
}

// The programs of a killed agent are detached, and the job continues.
func agentKilled(t *testing.T) {
	before := programs(t)
	group := "/sys/fs/cgroup/killed"
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Fatal(err)
	}
	agent := exec.Command("/proc/self/exe")
	agent.Env = append(os.Environ(), asAgent+"="+t.TempDir())
	var complaint strings.Builder
	agent.Stderr = &complaint
	out, err := agent.StdoutPipe()
	if err == nil {
		err = agent.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "started\n" {
		t.Fatalf("the agent said %q: %v: %s", line, err, complaint.String())
	}
	during := programs(t)
	dir, err := os.Open(group)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	work := exec.Command("known", "busy", "0", "3000")
	work.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	if err := work.Start(); err != nil {
		t.Fatal(err)
	}
	if err := agent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = agent.Wait() // it was killed
	if err := work.Wait(); err != nil {
		t.Errorf("the job was harmed: %v", err)
	}
	// The kernel frees programs a little later.
	for deadline := time.Now().Add(time.Minute); programs(t) != before; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("BPF programs: %d before, %d meanwhile, %d after", before, during, programs(t))
		}
	}
	t.Logf("BPF programs: %d before, %d meanwhile, %d after", before, during, programs(t))
	if during <= before {
		t.Errorf("the agent had nothing attached: %s", complaint.String())
	}
}

func stoppedEarly(t *testing.T) {
	j := newJob(t, nil, steady...)
	work := j.command("known", "busy", "0", "4000")
	if err := work.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second)
	j.run.Stop("stopped early")
	result, err := j.run.Result(t.Context())
	if why := others(result); err != nil || len(why) != 1 || why[0].Why != "stopped early" {
		t.Errorf("partial: %+v, %v", result.Partial, err)
	}
	if err := work.Wait(); err != nil {
		t.Errorf("the job was harmed: %v", err)
	}
	if result.Noise == nil || len(result.Noise.CPUs) == 0 {
		t.Errorf("nothing found before the stop: %+v", result.Noise)
	}
}

// TestWithoutTypesInGuest runs a slim kernel without the collectors' requirements: before the job starts each collector
// reports all missing options and a remedy, and the job runs.
func TestWithoutTypesInGuest(t *testing.T) {
	if !guest(t, "mitgcm", nil) {
		return
	}
	t.Run("refused", func(t *testing.T) {
		before := programs(t)
		for _, c := range all {
			var why *profiling.Unsupported
			if err := c.Check(); !errors.As(err, &why) || why.Reason != profiling.NoBTF {
				t.Fatalf("collector %s before the job: %v", c.Name(), err)
			}
		}
		j := newJob(t, nil, all...)
		if said := j.does("known", "calls", "1000"); said["getppid"] != 1000 {
			t.Errorf("the job said %v", said)
		}
		result, err := j.run.Result(t.Context())
		if err != nil || len(result.Refused) != len(all) {
			t.Fatalf("refused %+v, %v", result.Refused, err)
		}
		for i, r := range result.Refused {
			text := r.Unsupported.Error()
			t.Log(text)
			for _, words := range []string{
				fmt.Sprintf("collector %q: ", all[i].Name()), "no type information", "fragment profiling", "CONFIG_DEBUG_INFO_BTF",
				"CONFIG_MODULES", "CONFIG_FUNCTION_TRACER", "the distribution's",
			} {
				if !strings.Contains(text, words) {
					t.Errorf("refused without the words %q: %s", words, text)
				}
			}
		}
		if after := programs(t); after != before {
			t.Errorf("%d BPF programs before, %d after", before, after)
		}
	})
}
