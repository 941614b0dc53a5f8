// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"fmt"
	"path"
	"regexp"
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/strictyaml"
)

var (
	workloadName = regexp.MustCompile(`^[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9])?$`)
	programName  = regexp.MustCompile(`^[a-z0-9][a-z0-9-]*$`)
	packageName  = regexp.MustCompile(`^[a-z0-9][a-z0-9.+-]+$`)
	moduleName   = regexp.MustCompile(`^[a-z0-9_-]+$`)
)

// Parse is strict: an unknown key, a wrong value and a missing one are errors
// that name the file and, where there is one, the line.
func Parse(file string, data []byte) (Workload, error) {
	var w Workload
	if err := strictyaml.Decode(file, data, &w); err != nil {
		return Workload{}, err
	}
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
