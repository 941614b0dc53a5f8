// SPDX-License-Identifier: Apache-2.0

package build

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/autofdo"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/kconfig"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/pgo"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/atomicfile"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/digest"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/modules"
)

// droppedFile lists what slimming took away besides what it named.
const droppedFile = "dropped.json"

// ConfigureInput is what a configuration depends on besides the plan.
type ConfigureInput struct {
	Variant Variant
	// Slim is a fragment that wins over the recipe's, "" for none.
	Slim string
}

// Inputs names by value and digest all that Configure's result depends on.
func (in ConfigureInput) Inputs(plan Plan) (map[string]string, error) {
	inputs := plan.sourceInputs()
	inputs["options"] = digest.Of([]byte(plan.Merged.Text()))
	inputs["compiler"] = plan.Compiler.text()
	inputs["variant"] = string(in.Variant)
	if plan.Distribution != nil {
		inputs["base"] = digest.Of([]byte(plan.Distribution.Text()))
	}
	if in.Slim == "" {
		return inputs, nil
	}
	sum, _, err := digest.File(in.Slim)
	if err != nil {
		return nil, fmt.Errorf("kernel %q: slimming: %w", plan.Recipe.Name, err)
	}
	inputs["slimming"] = sum
	return inputs, nil
}

// Configure writes the kernel's configuration to out/config.
func (b *Builder) Configure(ctx context.Context, plan Plan, in ConfigureInput, out string) (err error) {
	defer plan.name(&err)
	source, err := b.Fetch(ctx, plan)
	if err != nil {
		return err
	}
	overlays := plan.overlays(in.Variant)
	var slim *kconfig.Fragment
	if in.Slim != "" {
		fragment, err := kconfig.ReadFragment(in.Slim)
		if err != nil {
			return fmt.Errorf("slimming: %w", err)
		}
		slim, overlays = &fragment, append(overlays, fragment)
	}
	asked, err := plan.Merged.Overlaid(overlays...)
	if err != nil {
		return err
	}
	return b.withObjects(ctx, plan, configuring, source.Tree, func(at site) error {
		dropped, err := b.configure(ctx, at, asked, slim)
		if err != nil {
			return err
		}
		if err := Publish(at.obj, out, ".config"); err != nil {
			return err
		}
		if err := os.Rename(filepath.Join(out, ".config"), filepath.Join(out, ConfigFile)); err != nil {
			return fmt.Errorf("configuration: %w", err)
		}
		return writeDropped(out, dropped)
	})
}

func writeDropped(out string, dropped []kconfig.Lost) error {
	if len(dropped) == 0 {
		return nil
	}
	unmet := map[string][]string{}
	for _, lost := range dropped {
		unmet[lost.Option.Symbol] = lost.Unmet
	}
	return atomicfile.WriteJSON(filepath.Join(out, droppedFile), unmet, 0o644)
}

// CompileInput is what a kernel depends on besides the plan.
type CompileInput struct {
	Variant Variant
	// Config is the configuration, as Configure wrote it for this variant.
	Config string
	// Profile is a folder that gcov's WriteFor wrote, or with a sample profile,
	// for the variant Optimised.
	Profile string

	// Linked may be nil. It is called with the object folder of the finished
	// kernel, which is the next kernel's as soon as it returns.
	Linked func(ctx context.Context, objects string) error

	// used and packages of modules are filled in by the build.
	used     *Use
	packages []modules.Package
}

// Inputs names by value and digest all that Compile's result depends on.
func (in CompileInput) Inputs(plan Plan) (map[string]string, error) {
	inputs := plan.sourceInputs()
	inputs["compiler"] = plan.Compiler.text()
	inputs["variant"] = string(in.Variant)
	inputs["name"], inputs["description"] = plan.names(in.Variant)
	inputs["optimisation"] = string(plan.optimisation(in.Variant))
	if level := plan.level(in.Variant); level != "" {
		inputs["level"] = level
	}
	if more := plan.more(in.Variant); len(more) > 0 {
		inputs["flags"] = strings.Join(more, " ")
	}
	if plan.lines() {
		inputs["lines"] = strings.Join(plan.sampling().MarkFlags(), " ")
	}
	if in.Variant == Instrumented || in.Variant == Optimised && !plan.lines() {
		inputs["sources"] = "called relative to objects" // counters have their names
	}
	if in.Variant == Optimised && plan.lines() {
		use, err := json.Marshal(plan.sampling())
		if err != nil {
			return nil, fmt.Errorf("kernel %q: %w", plan.Recipe.Name, err)
		}
		inputs["branches"] = string(use)
	}
	if in.Variant == Optimised {
		excluded, err := json.Marshal(plan.Recipe.Exclude)
		if err != nil {
			return nil, fmt.Errorf("kernel %q: %w", plan.Recipe.Name, err)
		}
		inputs["exclude"] = string(excluded)
	}
	if plan.carriesModules(in.Variant) {
		for _, m := range plan.Modules {
			inputs["modules of "+m.name()] = m.Version + " load " + strings.Join(m.Load, ",")
		}
	}
	var err error
	if in.Config != "" {
		if inputs["config"], _, err = digest.File(in.Config); err != nil {
			return nil, fmt.Errorf("kernel %q: configuration: %w", plan.Recipe.Name, err)
		}
	}
	if in.Profile != "" {
		digestOf := pgo.FolderDigest
		if plan.lines() {
			digestOf = autofdo.FolderDigest
		}
		if inputs["profile"], err = digestOf(in.Profile); err != nil {
			return nil, fmt.Errorf("kernel %q: %w", plan.Recipe.Name, err)
		}
	}
	return inputs, nil
}

// Compile makes the kernel and leaves image, configuration, System.map and
// manifest in the folder out. A profile that does not fit, or that the compiler
// ignored, is an error (gcov.ErrUnfit).
func (b *Builder) Compile(ctx context.Context, plan Plan, in CompileInput, watch Watch, out string) (manifest Manifest, err error) {
	defer plan.name(&err)
	if (in.Variant == Optimised) != (in.Profile != "") {
		return Manifest{}, errors.New("a profile is for the optimised variant, and that one needs it")
	}
	source, err := b.Fetch(ctx, plan)
	if err != nil {
		return Manifest{}, err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return Manifest{}, fmt.Errorf("output: %w", err)
	}
	err = b.withObjects(ctx, plan, in.Variant, source.Tree, func(at site) (err error) {
		if err := b.takeConfig(ctx, at, in.Config); err != nil {
			return err
		}
		input := in
		use := func() error { return b.compile(ctx, source, at, watch) }
		switch {
		case in.Variant == Optimised && plan.lines():
			if input.used, err = at.takeSamples(ctx, in.Profile); err != nil {
				return err
			}
		case in.Variant == Optimised:
			profiled := profiledBuild{builder: b, source: source, at: at, watch: watch}
			use = func() (err error) {
				input.used, err = profiled.run(ctx, in.Profile)
				return err
			}
		}
		if plan.carriesModules(in.Variant) {
			if err := removeIfThere(at.signingKey()); err != nil {
				return err
			}
			defer func() { err = errors.Join(err, removeIfThere(at.signingKey())) }()
		}
		if err := use(); err != nil {
			return err
		}
		if plan.carriesModules(in.Variant) {
			if input.packages, err = b.externalModules(ctx, source, at, watch, out); err != nil {
				return err
			}
		}
		if manifest, err = collect(ctx, at, source, input, out); err != nil {
			return err
		}
		if err := manifest.Fits(pgo.Unprofiled); err != nil || in.Linked == nil {
			return err
		}
		return in.Linked(ctx, at.obj)
	})
	return manifest, err
}

// Fits refuses a kernel that was compiled with a profile in vain. Without is the
// text of the same kernel compiled without one.
func (m Manifest) Fits(without pgo.Sections) error {
	if m.Profile == nil {
		return nil
	}
	if m.Sections == nil {
		return fmt.Errorf("kernel %q: the sizes of its text are not known", m.Name)
	}
	complaints, limits := m.Profile.Complaints, pgo.DefaultLimits
	complaints.Missing = slices.DeleteFunc(slices.Clone(complaints.Missing), func(object string) bool {
		return slices.ContainsFunc(m.Profile.Excluded, func(e Exclusion) bool { return e.Object == object })
	})
	if n := len(m.Profile.Excluded); n > maxExclusions && 10*n > m.Profile.Objects {
		limits.Unlikely = -100 // too little has a profile to show in the whole
	}
	if slices.Contains(m.Flags, "-fno-reorder-functions") {
		limits.Unlikely = -100 // nothing is set apart, by request
	}
	return limits.Judge(complaints, without, *m.Sections)
}

// takeConfig puts the configuration into the object folder. One that kconfig
// would change was made for another source or another compiler.
func (b *Builder) takeConfig(ctx context.Context, at site, config string) error {
	place := filepath.Join(at.obj, ".config")
	if err := copyFile(config, place); err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	wanted, err := os.ReadFile(place)
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	if err := b.quietMake(ctx, at, "olddefconfig"); err != nil {
		return err
	}
	now, err := os.ReadFile(place)
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	if string(now) != string(wanted) {
		return fmt.Errorf("configuration %s is not of this source and compiler: kconfig changes it", config)
	}
	return nil
}

// name says in an error of which kernel it is.
func (p Plan) name(err *error) {
	if *err != nil {
		*err = fmt.Errorf("kernel %q: %w", p.Recipe.Name, *err)
	}
}

// sourceInputs are the source's and its tools', for every step that reads it.
func (p Plan) sourceInputs() map[string]string {
	inputs := map[string]string{"source": p.Source.Name + " " + p.Source.Version}
	for _, patch := range p.Source.Patches {
		inputs["patch "+patch.Name] = patch.Digest + " " + patch.Upstream
	}
	if p.Pahole != "" {
		inputs["pahole"] = p.Pahole
	}
	return inputs
}

func (c Compiler) text() string { return c.Name + "; " + c.Version + "; " + c.Linker }

// Wanted is what kconfig begins with: the recipe's base with the plan's options
// over it.
func (p Plan) Wanted(source Source) (kconfig.Config, error) {
	base, err := p.base(source.Tree)
	if err != nil {
		return nil, err
	}
	return kconfig.ParseConfig(p.Merged.Over(base)), nil
}

// configure writes obj/.config and checks that all that was asked for is in
// it. Fragments are laid over the base before kconfig sees either: applied
// one after the other, every option that becomes visible through a fragment
// (all the network card vendors, once there is a network) would take its
// default instead of staying off.
//
// Options that slimming turned off take others with them. Those may be lost,
// and are returned; what slimming itself asked for must be there.
func (b *Builder) configure(ctx context.Context, at site, asked kconfig.Merged, slim *kconfig.Fragment) ([]kconfig.Lost, error) {
	base, err := at.plan.base(at.tree)
	if err != nil {
		return nil, err
	}
	wanted := filepath.Join(at.obj, "wanted.config")
	if err := os.WriteFile(wanted, []byte(asked.Over(base)), 0o644); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	if err := b.quietMake(ctx, at, "KCONFIG_ALLCONFIG="+wanted, "allnoconfig"); err != nil {
		return nil, err
	}
	if err := b.quietMake(ctx, at, "olddefconfig"); err != nil {
		return nil, err
	}
	got, err := kconfig.ReadConfig(filepath.Join(at.obj, ".config"))
	if err != nil {
		return nil, err
	}
	if kconfig.CheckSurvival(asked, got, nil) == nil {
		return nil, nil
	}
	definitions, err := kconfig.Read(os.DirFS(at.tree))
	if err != nil {
		return nil, err
	}
	err = kconfig.CheckSurvival(asked, got, definitions)
	var lost *kconfig.LostError
	if slim == nil || !errors.As(err, &lost) {
		return nil, err
	}
	return lost.Outside(*slim)
}
