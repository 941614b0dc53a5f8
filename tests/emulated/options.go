// SPDX-License-Identifier: Apache-2.0

package emulated

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/kernelbroker/kernelbroker/tests/support/slurmroot"
)

// Options describe a cluster; Defaults returns the usual ones.
type Options struct {
	// Dir is the cluster's folder, which is recreated.
	Dir string
	// Repo is the repository's top, Product the folder with the built programs.
	Repo, Product string
	// Slurm is the version: 22.05, 24.11 or 26.05.
	Slurm string
	// Nodes is the number of nodes: n1, n2, ...
	Nodes int
	// WithoutAgent are nodes with slurmd but without an agent.
	WithoutAgent []string
	// BootTime is the time from a kexec or a reset until the next kernel's init starts; BootTimes overrides it by node.
	BootTime  time.Duration
	BootTimes map[string]time.Duration
	// ReturnToService and ResumeTimeout are slurm.conf's.
	ReturnToService int
	ResumeTimeout   time.Duration
	// PowerSaving, if not 0, has Slurm power nodes down and up; it is the time
	// from power on to the node's init.
	PowerSaving time.Duration
	// Set replaces or adds keys of slurm.conf; Lines are added as they are.
	Set   map[string]string
	Lines []string
	// Accounting runs slurmdbd with its own database; nothing is enforced.
	Accounting bool
	// TwoBrokers runs an etcd of three members and, beside the broker, another one that waits: as on the host of a backup controller, its
	// hooks have the network alone.
	TwoBrokers bool
	// GresConf is a node's gres.conf by the name of its kernel, which may have no driver for what stock has one for.
	GresConf map[string]string
	// SchedulerParameters and SlurmctldParameters are added to the required ones.
	SchedulerParameters, SlurmctldParameters []string
	// Partitions replace the lines of partitions main and shared.
	Partitions []string
	// Broker, Client and Agent are laid over the product's configurations.
	Broker, Client, Agent map[string]any
	// Kernels besides "stock", with a profile each.
	Kernels []string
	// Progress, if not nil, receives progress messages.
	Progress io.Writer
}

// Defaults are the options of a small cluster on the version of Slurm that
// KB_SLURM names, bookworm's without it.
func Defaults() (Options, error) {
	repo, err := repository()
	if err != nil {
		return Options{}, err
	}
	return Options{
		Repo: repo, Product: filepath.Join(repo, "build"), Slurm: slurmroot.Wanted(),
		Nodes: 3, BootTime: 500 * time.Millisecond,
		ReturnToService: 1, ResumeTimeout: 60 * time.Second,
		Kernels: []string{"mitgcm", "lammps"},
	}, nil
}

// repository finds the top of the repository from the working folder.
func repository() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("repository: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if filepath.Dir(dir) == dir {
			return "", errors.New("repository: not below the working folder")
		}
		dir = filepath.Dir(dir)
	}
}

func (o Options) nodeNames() []string {
	var names []string
	for i := 1; i <= o.Nodes; i++ {
		names = append(names, fmt.Sprintf("n%d", i))
	}
	return names
}

func (o Options) hasAgent(node string) bool { return !slices.Contains(o.WithoutAgent, node) }

func (o Options) bootTime(node string) time.Duration {
	if d, ok := o.BootTimes[node]; ok {
		return d
	}
	return o.BootTime
}
