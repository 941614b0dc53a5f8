// SPDX-License-Identifier: Apache-2.0

//go:build lab

package collect_test

import (
	"os/exec"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect/callgraph"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect/noise"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect/syscalls"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/vm"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
)

// exact is a machine whose clock counts instructions: one per nanosecond, and time stops while the host has no CPU for
// it. So attribution of time can be checked on a shared machine.
func exact(g *vm.Guest) { g.Exact, g.CPUs = true, 1 }

// TestTimesInGuest checks each attribution of time with a program that does only this, within a stated tolerance.
func TestTimesInGuest(t *testing.T) {
	if !guest(t, "stock", exact) {
		return
	}
	t.Run("packets", waitsForPackets)
	t.Run("pipes", waitsForTheJob)
	t.Run("slow", namesSlowCalls)
	t.Run("slow of Slurm", leavesOutTheDaemon)
	t.Run("preempted by a neighbour", func(t *testing.T) { preempted(t, false) })
	t.Run("preempted by the job", func(t *testing.T) { preempted(t, true) })
	t.Run("noise", findsNoise)
	t.Run("callgraph", samplesTheKernel)
	t.Run("overhead", overhead)
	t.Run("budget", bounded)
	t.Run("budget of files", filesInLooks)
}

func waitsForPackets(t *testing.T) {
	j := newJob(t, nil, syscalls.Collector{})
	said := j.does("known", "packets", "50")
	result := j.result()
	received := j.call(result, "recvfrom", said["recvfrom"])
	// A packet may arrive before its receiver waits; a late wake-up on a shared machine is not waiting for the packet.
	wait := received.Split[profiling.CauseWaitPacket]
	near(t, "waits for a packet", float64(wait.Count), said["recvfrom"], 0.1)
	late := received.Split[profiling.CauseReadyJob].NS + received.Split[profiling.CauseReadyOther].NS +
		received.Split[profiling.CauseReadyIdle].NS
	near(t, "time in calls", float64(received.NS), said["waited_ns"], 0.1)
	near(t, "time waited for packets", float64(wait.NS), said["waited_ns"]-float64(late), 0.1)
	// On loopback the sender's call delivers the packet to its socket, except for those that the soft interrupt thread
	// takes over.
	sent := j.call(result, "sendto", said["sendto"])
	near(t, "packets for the job", float64(sent.Split[profiling.CausePacketJob].Count), said["sendto"], 0.1)
	if other := sent.Split[profiling.CausePacketOther]; other.Count > 2 {
		t.Errorf("packets for others: %+v", other)
	}
	slept := result.Syscalls.Named("clock_nanosleep")
	near(t, "sleeps that a timer ended", float64(slept.Split[profiling.CauseWaitDevice].Count), said["sendto"], 0.1)
}

func waitsForTheJob(t *testing.T) {
	j := newJob(t, nil, syscalls.Collector{})
	said := j.does("known", "pipes", "50")
	read := j.call(j.result(), "read", said["read"])
	wait := read.Split[profiling.CauseWaitJob]
	near(t, "waits for the job", float64(wait.Count), said["read"], 0.1)
	late := read.Split[profiling.CauseReadyJob].NS + read.Split[profiling.CauseReadyOther].NS + read.Split[profiling.CauseReadyIdle].NS
	near(t, "time waited for the job", float64(wait.NS), float64(read.NS-late), 0.1)
}

func preempted(t *testing.T, inside bool) {
	j := newJob(t, nil, syscalls.Collector{})
	// Longer than needed: it is killed.
	args := []string{"neighbour", "0", "1", "3600000", "0"}
	neighbour := exec.Command("known", args...)
	cause := profiling.CausePreemptedOther
	if inside {
		neighbour, cause = j.command("known", args...), profiling.CausePreemptedJob
	}
	if err := neighbour.Start(); err != nil {
		t.Fatal(err)
	}
	said := j.does("known", "preempted", "20")
	if err := neighbour.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = neighbour.Wait() // it was killed
	read := j.call(j.result(), "pread64", said["pread64"])
	away := said["wall_ns"] - said["ran_ns"]
	by := read.Split[profiling.CausePreemptedJob].NS + read.Split[profiling.CausePreemptedOther].NS
	near(t, "time preempted", float64(by), away, 0.05)
	// The thread that takes the CPU is charged for the whole absence, even if a third one follows.
	near(t, "of it by "+string(cause), float64(read.Split[cause].NS), float64(by), 0.2)
}

func findsNoise(t *testing.T) {
	j := newJob(t, nil, noise.Collector{})
	busy := j.command("known", "busy", "0", "600000")
	if err := busy.Start(); err != nil {
		t.Fatal(err)
	}
	said := output(t, exec.Command("known", "neighbour", "0", "20", "40", "80"))
	if err := busy.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = busy.Wait() // it was killed
	result := j.result()
	if len(result.Noise.CPUs) != 1 {
		t.Fatalf("noise is %+v", result.Noise)
	}
	cpu := result.Noise.CPUs[0]
	sources := map[string]profiling.NoiseSource{}
	for _, s := range cpu.Sources {
		sources[string(s.Kind)+" "+s.Name] = s
		t.Logf("%s %s: %d times, %d us, worst %d us", s.Kind, s.Name, s.Count, s.NS/1000, s.MostNS/1000)
	}
	near(t, "noise of the neighbour", float64(sources["thread known"].NS), said["ran_ns"], 0.1)
	var stolen, sum uint64
	for _, s := range cpu.Sources {
		sum += s.NS
		if s.Kind == profiling.NoiseThread {
			stolen += s.NS
		}
	}
	// The scheduler's time for the job is what it wanted and got.
	near(t, "time that the job had", float64(cpu.WantedNS-stolen), float64(result.Nodes[0].JobNS), 0.1)
	if sum != cpu.LostNS || sum == 0 || sum >= cpu.WantedNS {
		t.Errorf("sources add up to %d of %d ns lost, wanted were %d", sum, cpu.LostNS, cpu.WantedNS)
	}
	// Without the local timer of the CPU, which an exact machine has not.
	if timer := sources["irq timer"]; timer.Count < 100 {
		t.Errorf("timer interrupts: %+v", timer)
	}
	if worst, source, ok := result.Noise.Worst(); !ok || source.MostNS == 0 {
		t.Errorf("worst: %+v of CPU %d", source, worst.CPU)
	}
}

func samplesTheKernel(t *testing.T) {
	j := newJob(t, nil, callgraph.Collector{})
	j.does("known", "preempted", "40")
	result := j.result()
	graph := result.CallGraph
	samples := float64(graph.Kernel + graph.User)
	near(t, "samples", samples*float64(graph.PeriodNS), float64(result.Nodes[0].JobNS), 0.1)
	functions := map[string]profiling.Function{}
	for i, f := range graph.Functions() {
		functions[f.Name] = f
		if i < 5 {
			t.Logf("%s: self %d, all %d of %d", f.Name, f.Self, f.Total, graph.Kernel)
		}
	}
	if f := functions["vfs_read"]; float64(f.Total) < 0.8*float64(graph.Kernel) {
		t.Errorf("vfs_read is in %d of %d samples", f.Total, graph.Kernel)
	}
}
