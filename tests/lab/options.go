// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kernelbroker/kernelbroker/tests/support/slurmroot"
)

// Options says what kind of lab to bring up. The zero value of each field
// means its default.
type Options struct {
	// Dir is the lab's folder: state, logs, consoles, homes. Two labs with
	// different folders can be up side by side.
	Dir string `json:"dir"`
	// Repo is the folder that holds build/; by default the nearest folder
	// upwards from the working directory that has a go.mod.
	Repo string `json:"repo"`
	// Nodes is how many virtual machines, n1..nN.
	Nodes int `json:"nodes"`
	// Kernels is the folder of kernels by name, by default what
	// KB_LAB_KERNELS says, or build/kernels.
	Kernels string `json:"kernels"`
	// Kernel names the firmware's default kernel, a folder in Kernels:
	// "stock" is Debian's own, "suite-stock" a slim and quick one.
	Kernel string `json:"kernel"`
	// KernelArgs are appended to the node's kernel command line.
	KernelArgs []string `json:"kernel_args,omitempty"`
	// Memory is in MiB, CPUs in virtual processors, both per node.
	Memory int `json:"memory"`
	CPUs   int `json:"cpus"`
	// Accel is kvm, tcg, or empty to find out by a probe boot.
	Accel string `json:"accel"`
	// WithoutProduct brings up plain Slurm: no broker, agents, hooks or plugin.
	WithoutProduct bool `json:"without_product"`
	// ExternalEtcd runs an etcd beside the broker instead of inside it.
	ExternalEtcd bool `json:"external_etcd,omitempty"`
	// TwoBrokers runs an etcd of three members and, beside the broker, one that waits, with a data folder of its own.
	TwoBrokers bool `json:"two_brokers,omitempty"`
	// WithoutTLS disables authentication between nodes and broker.
	WithoutTLS bool `json:"without_tls,omitempty"`
	// WithoutCatalog leaves the broker's catalog empty.
	WithoutCatalog bool `json:"without_catalog,omitempty"`
	// Product is the folder of the built product, by default what
	// KB_LAB_PRODUCT says, or build.
	Product string `json:"product"`
	// Slurm changes slurm.conf.
	Slurm SlurmOptions `json:"slurm"`
	// Broker, Agent and Client are merged over the configuration files that the lab writes; nested maps are merged,
	// everything else is replaced, and nil deletes.
	Broker map[string]any `json:"broker,omitempty"`
	Agent  map[string]any `json:"agent,omitempty"`
	Client map[string]any `json:"client,omitempty"`
	// Files are added to the nodes' disk image: path on the node to path here.
	Files map[string]string `json:"files,omitempty"`
	// ReadyTimeout bounds the wait for all nodes to be idle.
	ReadyTimeout time.Duration `json:"ready_timeout"`
	// Owned ends the lab with the process that called Up, however that ends: for tests, which may be killed by a time
	// limit.
	Owned bool `json:"owned,omitempty"`
	// NoWait returns as soon as the machines run, before Slurm sees them.
	NoWait bool `json:"no_wait,omitempty"`
	// Progress receives a line for each step; nil is silence.
	Progress io.Writer `json:"-"`
}

// SlurmOptions are the parts of slurm.conf that tests vary.
type SlurmOptions struct {
	// Version is 22.05, 24.11 or 26.05, by default what KB_SLURM says, or 22.05. It is this machine's own Slurm where
	// that has the version, otherwise Debian's in a root of its own.
	Version         string `json:"version"`
	ReturnToService int    `json:"return_to_service"`
	// SchedulerParameters are added to the lab's own.
	SchedulerParameters []string `json:"scheduler_parameters,omitempty"`
	// Cgroup puts each job into cgroups of version 2, as profiling runs need: they track its processes, constrain cores,
	// and keep a process of the job on each node.
	Cgroup bool `json:"cgroup,omitempty"`
	// Accounting runs slurmdbd with its own database and makes slurmctld enforce accounts and limits. alice and bob have
	// the account "users"; tests add more with sacctmgr. The broker then runs as its own user, a Slurm administrator, as
	// in its unit.
	Accounting bool `json:"accounting,omitempty"`
	// REST enables tokens (auth/jwt) in slurmctld and runs slurmrestd, which accepts nothing else, as its own user.
	REST bool `json:"rest,omitempty"`
	// Set overrides keys of slurm.conf, after everything else; an empty value removes the key.
	Set map[string]string `json:"set,omitempty"`
}

const (
	maxNodes         = 64
	defaultMemory    = 512
	defaultReadyTime = 3 * time.Minute
)

// withDefaults fills in and checks the options.
func (o Options) withDefaults() (Options, error) {
	var err error
	if o.Repo == "" {
		if o.Repo, err = findRepo(); err != nil {
			return o, err
		}
	}
	if o.Repo, err = filepath.Abs(o.Repo); err != nil {
		return o, fmt.Errorf("repository %q: %w", o.Repo, err)
	}
	if o.Dir == "" {
		o.Dir = filepath.Join(o.Repo, "build", "lab", "default")
	}
	if o.Dir, err = filepath.Abs(o.Dir); err != nil {
		return o, fmt.Errorf("lab folder %q: %w", o.Dir, err)
	}
	o.Product = cmp.Or(o.Product, os.Getenv("KB_LAB_PRODUCT"), filepath.Join(o.Repo, "build"))
	o.Kernels = cmp.Or(o.Kernels, os.Getenv("KB_LAB_KERNELS"), filepath.Join(o.Repo, "build", "kernels"))
	if o.Kernels, err = filepath.Abs(o.Kernels); err != nil {
		return o, fmt.Errorf("kernels %q: %w", o.Kernels, err)
	}
	if o.Nodes == 0 {
		o.Nodes = 2
	}
	if o.Kernel == "" {
		o.Kernel = "stock"
	}
	if o.Slurm.Version == "" {
		o.Slurm.Version = slurmroot.Wanted()
	}
	if o.Memory == 0 {
		o.Memory = defaultMemory
	}
	if o.CPUs == 0 {
		o.CPUs = 1
	}
	if o.ReadyTimeout == 0 {
		o.ReadyTimeout = defaultReadyTime
	}
	return o, o.validate()
}

func (o Options) validate() error {
	switch {
	case o.Nodes < 1 || o.Nodes > maxNodes:
		return fmt.Errorf("nodes %d: want 1 to %d", o.Nodes, maxNodes)
	case o.Memory < 256:
		return fmt.Errorf("memory %d MiB: a node needs 256 or more", o.Memory)
	case o.CPUs < 1:
		return fmt.Errorf("cpus %d: want 1 or more", o.CPUs)
	case o.Accel != "" && o.Accel != "kvm" && o.Accel != "tcg":
		return fmt.Errorf("accelerator %q: want kvm, tcg or nothing", o.Accel)
	case !slices.Contains(slurmroot.Versions, o.Slurm.Version):
		return fmt.Errorf("slurm %q: want %s", o.Slurm.Version, strings.Join(slurmroot.Versions, ", "))
	case strings.ContainsAny(o.Dir, ",:\\ \t\n"):
		// Overlay mounts and QEMU options split on these.
		return fmt.Errorf("lab folder %q: no comma, colon, backslash or white space, please", o.Dir)
	case o.Dir == "/run" || strings.HasPrefix(o.Dir, "/run/"):
		return fmt.Errorf("lab folder %q: the lab has a /run of its own, choose another place", o.Dir)
	}
	return nil
}

// findRepo looks upwards for go.mod, since tests run in their package's folder.
func findRepo() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("working directory: %w", err)
	}
	for d := dir; ; d = filepath.Dir(d) {
		if _, err := os.Stat(filepath.Join(d, "go.mod")); err == nil {
			return d, nil
		}
		if d == filepath.Dir(d) {
			return "", errors.New("no go.mod upwards of " + dir + ": run in the repository or name it")
		}
	}
}

// cacheDir is where built images survive a fresh clone.
func cacheDir() (string, error) {
	if d := os.Getenv("KB_CACHE"); d != "" {
		return filepath.Join(d, "lab"), nil
	}
	d, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("cache folder: %w", err)
	}
	return filepath.Join(d, "kernel-broker", "lab"), nil
}

// DefaultDir is the default folder of a lab.
func DefaultDir() (string, error) {
	repo, err := findRepo()
	if err != nil {
		return "", err
	}
	return filepath.Join(repo, "build", "lab", "default"), nil
}
