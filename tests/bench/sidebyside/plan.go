// SPDX-License-Identifier: Apache-2.0

package sidebyside

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/measure"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/pipeline"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/verdict"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/workload"
)

// Plan is catalog/benches/NAME.yaml: what stands side by side. The
// distribution's own kernel always does.
type Plan struct {
	Name  string `yaml:"name"`
	Title string `yaml:"title"`
	// Slim is the one of Kernels that the others are compared with.
	Slim string `yaml:"slim"`
	// Kernels are recipes, Workloads those that each of them runs.
	Kernels   []string `yaml:"kernels"`
	Workloads []string `yaml:"workloads"`
}

// LoadPlan reads a plan of a catalog.
func LoadPlan(catalog, name string) (Plan, error) {
	path := filepath.Join(catalog, "benches", name+".yaml")
	data, err := os.ReadFile(path)
	if err != nil {
		return Plan{}, fmt.Errorf("bench %q: %w", name, err)
	}
	plan, err := ParsePlan(path, data)
	if err == nil && plan.Name != name {
		err = fmt.Errorf("%s: name is %q, the file says %q", path, name, plan.Name)
	}
	return plan, err
}

// ParsePlan is strict: an unknown key or a wrong value is an error.
func ParsePlan(path string, data []byte) (Plan, error) {
	var plan Plan
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	decoder.KnownFields(true)
	if err := decoder.Decode(&plan); err != nil {
		return Plan{}, fmt.Errorf("%s: %w", path, err)
	}
	if err := decoder.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return Plan{}, fmt.Errorf("%s: more than one document", path)
	}
	if key, wrong := plan.wrong(); wrong != "" {
		return Plan{}, fmt.Errorf("%s: key %q: %s", path, key, wrong)
	}
	return plan, nil
}

var planName = regexp.MustCompile(`^[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9])?$`)

func (p Plan) wrong() (key, text string) {
	for _, list := range []struct {
		key   string
		names []string
	}{{"name", []string{p.Name}}, {"kernels", p.Kernels}, {"workloads", p.Workloads}} {
		for _, name := range list.names {
			if !planName.MatchString(name) {
				return list.key, fmt.Sprintf("%q is not allowed", name)
			}
		}
	}
	switch {
	case p.Title == "":
		return "title", "missing"
	case len(p.Kernels) == 0:
		return "kernels", "none"
	case twice(p.Kernels) != "":
		return "kernels", fmt.Sprintf("%q stands twice", twice(p.Kernels))
	case slices.Contains(p.Kernels, pipeline.KernelStock):
		return "kernels", fmt.Sprintf("%q takes part by itself", pipeline.KernelStock)
	case !slices.Contains(p.Kernels, p.Slim):
		return "slim", fmt.Sprintf("%q is none of the kernels", p.Slim)
	case len(p.Workloads) == 0:
		return "workloads", "none"
	case twice(p.Workloads) != "":
		return "workloads", fmt.Sprintf("%q stands twice", twice(p.Workloads))
	}
	return "", ""
}

func twice(names []string) string {
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			return name
		}
	}
	return ""
}

// Open reads all recipes and workloads of a plan. The options are
// those of a build; their name is not used.
func Open(ctx context.Context, plan Plan, o pipeline.Options) (*SideBySide, error) {
	s := &SideBySide{Name: plan.Name, Title: plan.Title, Slim: plan.Slim, Command: o.Command, Machine: o.Machine, Rules: verdict.DefaultRules()}
	for _, name := range plan.Kernels {
		one := o
		one.Name, one.Current = name, ""
		p, err := pipeline.Open(ctx, one)
		if err != nil {
			return nil, fmt.Errorf("bench %q: %w", plan.Name, err)
		}
		s.Kernels = append(s.Kernels, p)
	}
	here := &host{}
	for _, name := range plan.Workloads {
		load, err := workload.Load(o.Catalog, name)
		if err != nil {
			return nil, fmt.Errorf("bench %q: %w", plan.Name, err)
		}
		s.Benches = append(s.Benches, emulator{host: here, Emulator: pipeline.Emulator{Load: load,
			Machine: measure.Bench{Plugin: o.Plugin, Places: workload.Places{Programs: o.Programs, Cache: o.Cache}}}})
	}
	return s, nil
}
