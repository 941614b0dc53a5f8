// SPDX-License-Identifier: Apache-2.0

package collectcost

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
)

// Job is a program that is measured with and without collectors.
type Job struct {
	Name string `json:"name"`
	// What it is, for people.
	What string `json:"what"`
	// Command is run in a new folder, with Files in it by their names, and
	// Environment.
	Command     []string          `json:"command"`
	Environment []string          `json:"environment"`
	Files       map[string]string `json:"files"`
	// Marks says that the program itself marks what counts.
	Marks bool `json:"marks"`
	// Proof is a file in that folder that has the words of a good end.
	Proof string `json:"proof"`
	Words string `json:"words"`
	// Both is the most that system calls and io together may add, in percent.
	Both float64 `json:"both"`
	// tools are programs and libraries of the host that the guest needs.
	tools func() ([]string, error)
	// programs are our own, below build/workloads, but for the loop and for one
	// that somebody built elsewhere.
	programs []string
	built    string
}

// loop is the program of the collectors' own tests, whose source is known.c.
const loop = "known"

// mostNoise is the most that noise may add to any job, in percent.
const mostNoise = 1

//go:embed hpccinf.txt
var hpccInput string

// Jobs that are measured.
func Jobs() []Job {
	return []Job{
		{
			Name: "hpcc", What: "HPC Challenge 1.5.0 of Debian, one rank, N = 400",
			Command: []string{"/usr/bin/hpcc"}, Files: map[string]string{"hpccinf.txt": hpccInput},
			// A rank by itself, which needs nobody to start it and no network.
			Environment: []string{"OMPI_MCA_ess_singleton_isolated=1", "OMPI_MCA_btl=self", "OMPI_MCA_pml=ob1", "TMPDIR=/tmp"},
			Proof:       "hpccoutf.txt", Words: "Success=1", Both: 4, tools: hpccTools,
		},
		{
			// The paper has 95 % of the model's time in its computation, and so has
			// this one of its instructions.
			Name: "mitgcm-replay", What: "a twelfth of MITgcm's year of input and output; 95 % of its instructions compute, as in the paper",
			Command: []string{"mitgcm-io", "--dir", ".", "--io-scale", "12", "--compute-scale", "2"},
			Marks:   true, Both: 4, programs: []string{"mitgcm-io"},
		},
		{
			Name: "mitgcm-replay-dense", What: "a tenth of it, and half of the computation, 89 % of its instructions",
			Command: []string{"mitgcm-io", "--dir", ".", "--io-scale", "10", "--compute-scale", "1"},
			Marks:   true, Both: 4, programs: []string{"mitgcm-io"},
		},
		{
			// The paper's worst case is such a ping-pong, with 9 to 10 %.
			Name: "ping-pong", What: "NetPIPE 3.7.2 of Debian, 3,000 messages of 64 bytes there and back over loopback TCP",
			Command: []string{"/bin/sh", "-c", `echo tcp 6 TCP >/etc/protocols
NPtcp -l 64 -u 64 -p 0 -n 3000 >server.log 2>&1 &
sleep 1
NPtcp -h 127.0.0.1 -l 64 -u 64 -p 0 -n 3000 -o np.out >client.log 2>&1
wait`},
			Proof: "client.log", Words: "3000 times", Both: 10, tools: netpipeTools,
		},
		{
			Name: "syscall-loop", What: "a loop of getppid, 3,000,000 calls that do nothing",
			Command: []string{loop, "calls", "3000000"}, Both: 10, programs: []string{loop},
		},
	}
}

// marker of the region that the job is.
func (j Job) marker() int {
	if j.Marks {
		return regionOwn
	}
	return regionJob
}

// hpccTools are the program, and what Open MPI loads by itself.
func hpccTools() ([]string, error) {
	const program = "/usr/bin/hpcc"
	if _, err := os.Stat(program); err != nil {
		return nil, fmt.Errorf("hpcc: %w: make deps-long installs it", err)
	}
	tools := []string{program}
	for _, pattern := range []string{
		"/usr/lib/x86_64-linux-gnu/openmpi/lib/openmpi3/mca_*.so",
		"/usr/share/openmpi/*.txt",
		"/etc/openmpi/*.conf",
	} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return nil, err
		}
		for _, path := range found {
			if !left[filepath.Base(path)] {
				tools = append(tools, path)
			}
		}
	}
	return tools, nil
}

func netpipeTools() ([]string, error) {
	const program = "/usr/bin/NPtcp"
	if _, err := os.Stat(program); err != nil {
		return nil, fmt.Errorf("netpipe: %w: make deps-long installs it", err)
	}
	return []string{program}, nil
}

// left out are parts of Open MPI for networks that a guest has not; they would
// bring a hundred megabytes of libraries.
var left = map[string]bool{
	"mca_atomic_ucx.so": true, "mca_btl_ofi.so": true, "mca_btl_openib.so": true, "mca_mtl_ofi.so": true, "mca_mtl_psm.so": true,
	"mca_mtl_psm2.so": true, "mca_osc_ucx.so": true, "mca_pml_ucx.so": true, "mca_spml_ucx.so": true, "mca_sshmem_ucx.so": true,
}
