// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/catalog"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/admission"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/kconfig"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/site"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/rounded"
)

// documentAdmission is the record of the checks before registration.
const documentAdmission = "admission"

// maxText of a given manifest or configuration.
const maxText = 4 << 20

// bootTest boots a kernel that is brought; see admission.Try.
type bootTest func(ctx context.Context, image string, f admission.Finding, folder string, console io.Writer) (*admission.Boot, error)

// admitting holds the flags of the checks before a registration.
type admitting struct {
	config     string
	drivers    []string
	noBootTest bool
	reason     string
}

func (d *admitting) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&d.config, "config-file", "", "the kernel's configuration `file`, if the kernel does not contain it")
	f.StringSliceVar(&d.drivers, "driver", nil, "a `driver` that the kernel has, in addition to those that the boot test finds")
	f.BoolVar(&d.noBootTest, "no-boot-test", false, "skip the boot test in a virtual machine; the record notes that")
	f.StringVar(&d.reason, "reason", "", "`text` for the record")
}

// admit checks all files before any is stored, on copies that the registration uses from then on: what is uploaded and
// signed is what was checked. It fills in a missing manifest and the reason. cleanUp removes the copies.
func (a *app) admit(ctx context.Context, r *registration) (cleanUp func() error, err error) {
	dir, err := os.MkdirTemp("", "kernelctl-register-")
	if err != nil {
		return nil, err
	}
	remove := func() error { return os.RemoveAll(dir) }
	if err := a.admitIn(ctx, dir, r); err != nil {
		return nil, errors.Join(err, remove())
	}
	return remove, nil
}

// findBeside takes the report and the configuration beside the kernel where none is given.
func (r *registration) findBeside() error {
	for path, name := range map[*string]string{&r.report: catalog.ReportFile, &r.admitting.config: build.ConfigFile} {
		beside := filepath.Join(filepath.Dir(r.kernel), name)
		if *path != "" {
			continue
		}
		if _, err := os.Stat(beside); err == nil {
			*path = beside
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return r.findModules()
}

// findModules takes the archive of modules that the manifest names, where none is given.
func (r *registration) findModules() error {
	if r.manifest == "" || r.modules != "" {
		return nil
	}
	m, err := catalog.ReadManifest(r.manifest)
	if err != nil || m.ModuleArchive == nil {
		return err
	}
	r.modules = filepath.Join(filepath.Dir(r.manifest), m.ModuleArchive.Name)
	return nil
}

// copyFiles copies the registration's files into a folder and makes it use the copies.
func (r *registration) copyFiles(dir string) error {
	for _, file := range []struct {
		path  *string
		role  string
		limit int64
	}{
		{&r.kernel, "kernel", catalog.MaxImage}, {&r.initrd, "initrd", catalog.MaxInitrd}, {&r.modules, "modules", catalog.MaxModules},
		{&r.manifest, "manifest", maxText}, {&r.admitting.config, "config", maxText},
		{&r.report, "report", catalog.MaxDocument},
	} {
		if *file.path == "" {
			continue
		}
		// A folder for each: the names are the user's.
		of := filepath.Join(dir, "given", file.role)
		if err := os.MkdirAll(of, 0o700); err != nil {
			return err
		}
		to := filepath.Join(of, filepath.Base(*file.path))
		if err := admission.Take(*file.path, to, file.limit); err != nil {
			return err
		}
		*file.path = to
	}
	return nil
}

func (a *app) admitIn(ctx context.Context, dir string, r *registration) error {
	if err := r.findBeside(); err != nil {
		return err
	}
	given := *r // for messages: users do not know the copies' names
	if err := r.copyFiles(dir); err != nil {
		return err
	}
	f, err := admission.Check(ctx, admission.Subject{Image: r.kernel, Config: r.admitting.config, Name: given.kernel, Modules: r.modules,
		Arguments: slices.Concat(r.arguments, kb.Kernel{SystemCores: r.systemCores}.ParametersOfNode())})
	if err != nil {
		return err
	}
	image, err := catalog.DescribeFile(r.kernel, catalog.MaxImage)
	if err != nil {
		return err
	}
	if r.report != "" {
		if _, err := readMeasurement(r.report, given.report, image.Digest, r.manifest); err != nil {
			return err
		}
	}
	if r.manifest != "" {
		if err := sameAsManifest(f, image, r.manifest, given.manifest); err != nil {
			return err
		}
	}
	if r.admitting.noBootTest {
		r.admitting.reason = strings.TrimSpace(r.admitting.reason + " (not booted before)")
	} else {
		a.say("booting %s in a virtual machine", given.kernel)
		try := a.try
		if try == nil {
			try = admission.Try
		}
		if f.Boot, err = try(ctx, r.kernel, f, dir, nil); err != nil {
			return fmt.Errorf("%w\n(--no-boot-test registers it without)", err)
		}
		a.say("it boots, proves itself and can be left again (%s)", rounded.Time(f.Boot.Took))
	}
	if r.manifest == "" {
		if r.manifest, err = writeManifest(dir, *r, f, image); err != nil {
			return err
		}
	}
	return r.document(dir, f)
}

// sameAsManifest compares the manifest with the image; name is the manifest's for errors.
func sameAsManifest(f admission.Finding, image catalog.Artifact, path, name string) error {
	m, err := catalog.ReadManifest(path)
	if err != nil {
		return fmt.Errorf("manifest %q: %w", name, err)
	}
	for _, field := range []struct{ name, said, is string }{
		{"build id", m.BuildID, f.BuildID}, {"release", m.Release, f.Release}, {"image", m.Image.Digest, image.Digest},
	} {
		if field.said != field.is {
			return fmt.Errorf("%s: %s is %q, the image has %q: %w", name, field.name, field.said, field.is, kb.ErrInvalid)
		}
	}
	return nil
}

// writeManifest describes a kernel without a manifest from its own data.
func writeManifest(dir string, r registration, f admission.Finding, image catalog.Artifact) (string, error) {
	drivers := slices.Clone(r.admitting.drivers)
	if f.Boot != nil {
		drivers = append(drivers, f.Boot.Drivers...)
	}
	if len(drivers) == 0 {
		return "", usageError{errors.New("the kernel's drivers are unknown: give --manifest or --driver, or omit --no-boot-test")}
	}
	slices.Sort(drivers)
	m := build.Manifest{
		Format: build.ManifestFormat, Name: r.profile, Release: f.Release, BuildID: f.BuildID, Architecture: "x86_64",
		Image:   build.File{Name: filepath.Base(r.kernel), Digest: image.Digest, Size: int64(image.Size)},
		Drivers: build.Offer{BuiltIn: slices.Compact(drivers), Modular: []string{}},
		Limits:  build.Limits{CommandLineBytes: f.CommandLineBytes},
	}
	if err := m.Write(dir); err != nil {
		return "", err
	}
	return filepath.Join(dir, build.ManifestFile), nil
}

// document stores the findings with the version.
func (r *registration) document(dir string, f admission.Finding) error {
	if f.Config != "inside" {
		f.Config = "given"
	}
	text, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return err
	}
	path := filepath.Join(dir, documentAdmission)
	if r.documents == nil {
		r.documents = map[string]string{}
	}
	r.documents[documentAdmission] = path
	if r.report != "" {
		r.documents[documentReport] = r.report
	}
	return os.WriteFile(path, append(text, '\n'), 0o600)
}

// allowed refuses arguments that the site's policy does not let jobs have.
func (a *app) allowed(name string, arguments []string) error {
	policy, err := site.Load(cmp.Or(a.site, site.DefaultPath))
	if err != nil {
		return err
	}
	if err := policy.Allow(arguments); err != nil {
		return fmt.Errorf("kernel %q: %w", name, err)
	}
	return nil
}

// honoured refuses arguments that the kernel would ignore, by its configuration; nil where nobody has it, beside the image neither.
func (a *app) honoured(k *api.KernelSpec, config kconfig.Config) error {
	arguments := slices.Concat(k.GetArguments(), kb.Kernel{SystemCores: k.GetSystemCores()}.ParametersOfNode())
	if config != nil {
		if err := kb.CheckHonoured(arguments, config.On); err != nil {
			return fmt.Errorf("kernel %q: %w", refOfSpec(k), err)
		}
		return nil
	}
	if k.GetSystemCores() > 0 {
		// Nobody would see that such a kernel ignores them: it boots, and is proven.
		return fmt.Errorf("kernel %q: system cores need %s, and the kernel carries no configuration; put the file that it was built with beside the image, as %s: %w",
			refOfSpec(k), strings.Join(kb.SystemCoresNeed(), ", "), build.ConfigFile, kb.ErrFailedPrecondition)
	}
	var unchecked []string
	for _, argument := range arguments {
		if needs := kb.HonouredBy(argument); needs != nil {
			unchecked = append(unchecked, fmt.Sprintf("%s (CONFIG_%s)", argument, strings.Join(needs, " or CONFIG_")))
		}
	}
	if len(unchecked) > 0 {
		a.say("kernel %s has no configuration: support for %s was not checked", refOfSpec(k), strings.Join(unchecked, ", "))
	}
	return nil
}

func refOfSpec(k *api.KernelSpec) string { return kernelRef(k.GetProfile(), k.GetVersion()) }
