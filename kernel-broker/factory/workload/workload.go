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
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/vm"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/strictyaml"
)

// Workload is catalog/workloads/<name>.yaml.
type Workload struct {
	Name string `yaml:"name"`
	// Like names a workload whose keys hold where this one has none, as for other inputs or another machine. It is no part of
	// a run's key: what it gives is.
	Like string `yaml:"like" json:"-"`
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
	// Processor is the model that is emulated. What came later is left out of the JSON form when it has its default, since
	// that form is part of the key of every run.
	Processor string `yaml:"processor" json:",omitempty"`
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

func Load(catalog, name string) (Workload, error) { return load(catalog, name, true) }

// load loads a workload; mayBeLike says whether it may be like another one.
func load(catalog, name string, mayBeLike bool) (Workload, error) {
	path, data, err := read(catalog, name)
	if err != nil {
		return Workload{}, err
	}
	var w Workload
	if err := strictyaml.Decode(path, data, &w); err != nil {
		return Workload{}, err
	}
	if w.Like != "" && !mayBeLike {
		return Workload{}, fmt.Errorf("workload %q is itself like %q: name one that is like no other", name, w.Like)
	}
	if w.Like != "" {
		base, err := load(catalog, w.Like, false)
		if err != nil {
			return Workload{}, fmt.Errorf("%s: line %d: key \"like\": %w", path, strictyaml.LineOf(data, "like"), err)
		}
		base.Name = ""
		if err := strictyaml.Decode(path, data, &base); err != nil {
			return Workload{}, err
		}
		w = base
	}
	if w, err = complete(path, data, w); err == nil && w.Name != name {
		err = fmt.Errorf("%s: key \"name\" is %q, the file is named %q", path, w.Name, name)
	}
	return w, err
}

func read(catalog, name string) (path string, data []byte, err error) {
	if !workloadName.MatchString(name) {
		return "", nil, fmt.Errorf("workload name %q: use lower-case letters, digits, dot, dash and underscore", name)
	}
	path = filepath.Join(catalog, "workloads", name+".yaml")
	data, err = os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil, fmt.Errorf("workload %q: not in the catalog (looked for %s)", name, path)
	}
	if err != nil {
		return "", nil, fmt.Errorf("workload %q: %w", name, err)
	}
	return path, data, nil
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
		Processor: w.Processor,
		Limit:     time.Duration(w.LimitMinutes) * time.Minute,
	}
}

var (
	workloadName = regexp.MustCompile(`^[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9])?$`)
	programName  = regexp.MustCompile(`^[a-z0-9][a-z0-9-]*$`)
	packageName  = regexp.MustCompile(`^[a-z0-9][a-z0-9.+-]+$`)
	modelName    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]*$`)
	moduleName   = regexp.MustCompile(`^[a-z0-9_-]+$`)
)

// Parse reads a workload that is like no other one. It is strict: an unknown key, a wrong value and a missing one are errors
// that name the file and, where there is one, the line.
func Parse(file string, data []byte) (Workload, error) {
	var w Workload
	if err := strictyaml.Decode(file, data, &w); err != nil {
		return Workload{}, err
	}
	return complete(file, data, w)
}

// complete fills in what a file leaves out, and checks what is then there.
func complete(file string, data []byte, w Workload) (Workload, error) {
	w.fill()
	if wrong := w.validate(); wrong != nil {
		return Workload{}, fmt.Errorf("%s: line %d: key %q: %s", file, strictyaml.LineOf(data, wrong.key), wrong.key, wrong.text)
	}
	return w, nil
}

func (w *Workload) fill() {
	for _, value := range []struct {
		to        *int
		otherwise int
	}{{&w.CPUs, defaultCPUs}, {&w.MemoryMiB, defaultMemory}, {&w.LimitMinutes, defaultLimit}} {
		if *value.to == 0 {
			*value.to = value.otherwise
		}
	}
}

// mistake is a value that is not allowed.
type mistake struct{ key, text string }

func (w *Workload) validate() *mistake {
	if !workloadName.MatchString(w.Name) {
		return &mistake{"name", fmt.Sprintf("%q is not allowed", w.Name)}
	}
	for _, text := range []struct{ key, value string }{
		{"application", w.Application}, {"description", w.Description}, {"operation", w.Operation}, {"run", w.Run},
	} {
		if strings.TrimSpace(text.value) == "" {
			return &mistake{text.key, "is missing"}
		}
	}
	for _, check := range []func() *mistake{w.validateLists, w.validateMachine, w.validateRuns} {
		if wrong := check(); wrong != nil {
			return wrong
		}
	}
	return nil
}

func (w *Workload) validateLists() *mistake {
	if len(w.Programs)+len(w.Packages)+len(w.Tools) == 0 {
		return &mistake{"programs", "neither programs nor packages nor tools"}
	}
	if len(w.Files) > 0 && len(w.Packages) == 0 {
		return &mistake{"files", "files of packages, and no packages"}
	}
	for _, list := range []struct {
		key    string
		values []string
		ok     func(string) bool
	}{
		{"programs", w.Programs, programName.MatchString},
		{"packages", w.Packages, packageName.MatchString},
		{"modules", w.Modules, moduleName.MatchString},
		{"files", w.Files, cleanPath},
		{"tools", w.Tools, cleanPath},
	} {
		seen := map[string]bool{}
		for _, value := range list.values {
			if !list.ok(value) || seen[value] {
				return &mistake{list.key, fmt.Sprintf("%q is not allowed or is there twice", value)}
			}
			seen[value] = true
		}
	}
	for name := range w.Config {
		if !cleanPath(name) {
			return &mistake{"config", fmt.Sprintf("%q is not an absolute path", name)}
		}
	}
	return nil
}

func cleanPath(name string) bool {
	return path.IsAbs(name) && path.Clean(name) == name && name != "/"
}

func (w *Workload) validateMachine() *mistake {
	if w.Processor != "" && !modelName.MatchString(w.Processor) {
		return &mistake{"processor", fmt.Sprintf("%q is not a model of the emulator (qemu-system-x86_64 -cpu help)", w.Processor)}
	}
	for _, value := range []struct {
		key             string
		is, least, most int
	}{
		{"cpus", w.CPUs, 1, 64}, {"memory", w.MemoryMiB, 64, 65536},
		{"disk", w.DiskMiB, 0, 65536}, {"limit", w.LimitMinutes, 1, 1440},
	} {
		if value.is < value.least || value.is > value.most {
			return &mistake{value.key, fmt.Sprintf("%d is not from %d to %d", value.is, value.least, value.most)}
		}
	}
	return nil
}

// validateRuns: what a kernel learnt from must not be what it is judged by.
func (w *Workload) validateRuns() *mistake {
	for _, run := range []struct {
		key string
		Parameters
	}{{"train", w.Train}, {"test", w.Test}} {
		if run.Size < 1 || run.Seed < 0 {
			return &mistake{run.key, fmt.Sprintf("seed %d, size %d", run.Seed, run.Size)}
		}
	}
	if w.Train.Seed == w.Test.Seed || w.Train.Size == w.Test.Size {
		return &mistake{"test", "has the seed or the size of the training run"}
	}
	return nil
}
