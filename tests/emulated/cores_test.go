// SPDX-License-Identifier: Apache-2.0

//go:build emulated

package emulated

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// coresScript writes down the kernel's arguments and the CPUs of slurmd, of the batch script and of a step.
const coresScript = `#!/bin/bash
allowed() { grep Cpus_allowed_list: "/proc/$1/status" | cut -f2; }
{
	echo "line=$(tr ' ' ';' </proc/cmdline) slurmd=$(allowed "$(cat /run/slurmd.pid)") batch=$(allowed self) \
step=$(srun grep Cpus_allowed_list: /proc/self/status | cut -f2)"
} >>cores
until [ -e go ]; do sleep 0.1; done
`

// withCores registers a profile that divides the cores of a node.
func (s *Trial) withCores(name, cores string) {
	s.T.Helper()
	text := strings.Replace(profileText(name, "mitgcm"), "    arguments: []\n", "    cores: {system: "+cores+"}\n", 1)
	dir := s.Path("catalog/cores-" + name)
	s.OK(os.MkdirAll(dir, 0o755))
	s.OK(write(filepath.Join(dir, name+".yaml"), text, 0o644))
	s.Must("root", "kernelctl", "profile", "apply", "/catalog/cores-"+name, "--kernels", "/catalog/kernels")
}

// A kernel with system cores: the node composes its arguments, slurmd keeps to the system's CPUs, and a job's processes to the
// others, although this cluster has no task plugin. The node returns without any of that.
func TestSystemCores(t *testing.T) {
	t.Parallel()
	s := Start(t, nil)
	s.withCores("split", "1")
	s.withCores("greedy", "2")
	if out := s.Must("alice", "kernelctl", "profile", "show", "split"); !strings.Contains(out, "split@1  1       the others") {
		t.Errorf("profile show prints\n%s", out)
	}
	s.File("alice", "cores.sh", coresScript)
	id := s.Must("alice", "sbatch", "--parsable", "-N1", "-w", "n1", "--kernel-profile=split", "cores.sh")
	s.Wait(Limit, "the job's record", func() bool { return strings.Contains(s.Read("alice", "cores"), "step=") },
		func() string { return s.State(id) })
	r := s.RecordsIn("alice", "cores")[0]
	want := ";isolcpus=managed_irq,1;nohz_full=1;rcu_nocbs=1;irqaffinity=0;systemd.cpu_affinity=0;kernelbroker.system_cpus=0;kernelbroker.token="
	if !strings.Contains(r["line"], want) {
		t.Errorf("the kernel's arguments are %s", r["line"])
	}
	if others := r["batch"]; runtime.NumCPU() > 1 && (r["slurmd"] != "0" || !strings.HasPrefix(others, "1") || r["step"] != others) {
		t.Errorf("CPUs of slurmd, the batch script and a step: %v", r)
	}
	if out := s.Must("root", "kernelctl", "node", "show", "n1"); !strings.Contains(out, "Cores:             2\nApplication CPUs:  1\n") {
		t.Errorf("node show prints\n%s", out)
	}
	s.File("alice", "go", "")
	s.WaitJob(id, "COMPLETED")
	s.Settled(Limit)
	if line := s.Node("n1").read("proc/cmdline"); strings.Contains(line, "nohz_full") || strings.Contains(line, "system_cpus") {
		t.Errorf("back on stock, the arguments are %s", line)
	}
	if out := s.Must("root", "kernelctl", "node", "show", "n1"); strings.Contains(out, "Application CPUs") {
		t.Errorf("back on stock, node show prints\n%s", out)
	}
	// No core would be left for the application: held with the reason, and no node booted.
	kexecs := s.Kexecs()
	id = s.Sbatch("alice", "0", "-N1", "--kernel-profile=greedy")
	s.Wait(Limit, "job "+id+" to be held", func() bool {
		return strings.Contains(s.Job(id)["AdminComment"], "of 2 cores none is left for the application with 2 kept for the system")
	}, func() string { return s.State(id) })
	s.Settled(Limit)
	if n := s.Kexecs(); n != kexecs {
		t.Errorf("%d kexecs for a kernel that does not fit", n-kexecs)
	}
	s.Must("alice", "scancel", id)
}

// What a site sets in slurm.conf so that Slurm, too, counts without the system's cores: the CPUs that it leaves out are those
// that the kernel gives to the system.
func TestSystemCoresAreSlurmsSpecializedCores(t *testing.T) {
	t.Parallel()
	s := Start(t, func(o *Options) {
		o.Lines = append(o.Lines, "NodeName=DEFAULT CoreSpecCount=1")
		o.SchedulerParameters = append(o.SchedulerParameters, "spec_cores_first")
		o.Set = map[string]string{"AllowSpecResourcesUsage": "yes"}
	})
	s.withCores("split", "1")
	s.File("alice", "cores.sh", coresScript)
	s.File("alice", "go", "")
	if r := s.Try("alice", "sbatch", "--parsable", "-N1", "-n2", "--kernel-profile=split", "cores.sh"); r.Exit == 0 {
		t.Errorf("two tasks on one application core: job %s", r.Stdout)
	}
	id := s.Must("alice", "sbatch", "--parsable", "-N1", "-n1", "--kernel-profile=split", "cores.sh")
	job := s.WaitJob(id, "COMPLETED")
	if job["NumCPUs"] != "1" {
		t.Errorf("the job has %s CPUs of 2", job["NumCPUs"])
	}
	// A plain job may take the system's core back.
	if r := s.Try("bob", "sbatch", "--parsable", "-N1", "-n2", "--wrap=true"); r.Exit == 0 {
		t.Errorf("two tasks on one core: job %s", r.Stdout)
	}
	s.WaitJob(s.Must("bob", "sbatch", "--parsable", "-N1", "-n2", "--core-spec=0", "--wrap=srun sh -c 'echo task >>tasks'"), "COMPLETED")
	if tasks := strings.Count(s.Read("bob", "tasks"), "task"); tasks != 2 {
		t.Errorf("%d tasks, and not 2", tasks)
	}
	r := s.RecordsIn("alice", "cores")[0]
	if runtime.NumCPU() > 1 && (r["slurmd"] != "0" || !strings.HasPrefix(r["step"], "1")) {
		t.Errorf("CPUs of slurmd, the batch script and a step: %v", r)
	}
	node := fields(s.Must("root", "scontrol", "show", "node", "n1"))
	if node["CoreSpecCount"] != "1" || node["CPUSpecList"] != "0" {
		t.Errorf("Slurm's specialised CPUs are %s (%s cores)", node["CPUSpecList"], node["CoreSpecCount"])
	}
}

// The same for one job only, by an option of its own.
func TestSystemCoresOfOneJob(t *testing.T) {
	t.Parallel()
	s := Start(t, func(o *Options) {
		o.SchedulerParameters = append(o.SchedulerParameters, "spec_cores_first")
		o.Set = map[string]string{"AllowSpecResourcesUsage": "yes"}
	})
	s.withCores("split", "1")
	args := []string{"sbatch", "--parsable", "-N1", "--core-spec=1", "--kernel-profile=split", "--wrap=true"}
	if r := s.Try("alice", append(args[:len(args)-1:len(args)-1], "-n2", "--wrap=true")...); r.Exit == 0 {
		t.Errorf("two tasks on one application core: job %s", r.Stdout)
	}
	if job := s.WaitJob(s.Must("alice", args...), "COMPLETED"); job["CoreSpec"] != "1" {
		t.Errorf("the job leaves %s cores to the system", job["CoreSpec"])
	}
	if job := s.WaitJob(s.Must("bob", "sbatch", "--parsable", "-N1", "-n2", "--wrap=true"), "COMPLETED"); job["NumCPUs"] != "2" {
		t.Errorf("a plain job has %s CPUs of 2", job["NumCPUs"])
	}
}
