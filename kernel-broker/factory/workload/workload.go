// SPDX-License-Identifier: Apache-2.0

// Package workload holds the programs that kernels are trained and measured
// with, as data: catalog/workloads/<name>.yaml names programs of our own or
// Debian packages, how they are set up, run and checked, and with which seed
// and size for training and for testing.
//
// A workload becomes a guest's root file system and script. The script marks
// what counts: it, or a program in it, meets the markers that the plugin kbcount
// knows, and writes to /out/regions what each region was and how many operations
// it had. Packages are downloaded and unpacked, never installed.
//
// Adding an application takes a file in the catalog and no code.
package workload

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/vm"
)

// Workload is catalog/workloads/<name>.yaml.
type Workload struct {
	Name string `yaml:"name"`
	// Application and Description are for reports.
	Application string `yaml:"application"`
	Description string `yaml:"description"`
	// Operation is what one operation is, such as "write of 8 bytes".
	Operation string `yaml:"operation"`
	// Programs are our own, built by make.
	Programs []string `yaml:"programs"`
	// Packages are Debian's, Files what the guest needs of them.
	Packages []string `yaml:"packages"`
	Files    []string `yaml:"files"`
	// Tools are programs of the host, with their libraries.
	Tools []string `yaml:"tools"`
	// Config are small files, by their path in the guest.
	Config map[string]string `yaml:"config"`
	// Modules that a kernel needs, if it has modules at all; those that they
	// depend on come by themselves.
	Modules []string `yaml:"modules"`
	// CPUs, MemoryMiB and DiskMiB of the guest. A workload with a disk or with
	// several CPUs does not repeat exactly.
	CPUs      int `yaml:"cpus"`
	MemoryMiB int `yaml:"memory"`
	DiskMiB   int `yaml:"disk"`
	// LimitMinutes after which a guest counts as hung.
	LimitMinutes int `yaml:"limit"`
	// Setup, Run and Check are shell, with $KB_SEED and $KB_SIZE. Only Run is
	// traced or profiled; Check finds out whether the results are right.
	Setup string `yaml:"setup"`
	Run   string `yaml:"run"`
	Check string `yaml:"check"`
	// Train and Test differ, so that a kernel is not judged by what it learnt.
	Train Parameters `yaml:"train"`
	Test  Parameters `yaml:"test"`
}

// Parameters of one run.
type Parameters struct {
	// Seed of all that looks random.
	Seed int64 `yaml:"seed"`
	// Size is how much there is to do, in the workload's own terms.
	Size int64 `yaml:"size"`
}

const (
	defaultCPUs   = 1
	defaultMemory = 512
	defaultLimit  = 60 // minutes: emulated, on a machine that may be busy
)

// Load reads a workload of a catalog.
func Load(catalog, name string) (Workload, error) {
	if !workloadName.MatchString(name) {
		return Workload{}, fmt.Errorf("workload name %q: use lower-case letters, digits, dot, dash and underscore", name)
	}
	path := filepath.Join(catalog, "workloads", name+".yaml")
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return Workload{}, fmt.Errorf("workload %q: not in the catalog (looked for %s)", name, path)
	}
	if err != nil {
		return Workload{}, fmt.Errorf("workload %q: %w", name, err)
	}
	w, err := Parse(path, data)
	if err == nil && w.Name != name {
		err = fmt.Errorf("%s: key \"name\" is %q, the file is named %q", path, w.Name, name)
	}
	return w, err
}

// Exact says whether two runs give the same counts: a disk answers when the
// host likes, and several processors meet when it likes.
func (w Workload) Exact() bool { return w.DiskMiB == 0 && w.Counted() }

// Counted says whether the guest's clock can count instructions, which it can
// for one processor only.
func (w Workload) Counted() bool { return w.CPUs == 1 }

// Guest is the machine that the workload needs, still without a kernel and an
// initrd.
func (w Workload) Guest() vm.Guest {
	return vm.Guest{
		CPUs:      w.CPUs,
		MemoryMiB: w.MemoryMiB,
		Disk:      int64(w.DiskMiB) << 20,
		Limit:     time.Duration(w.LimitMinutes) * time.Minute,
	}
}
