// SPDX-License-Identifier: Apache-2.0

package build

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/kconfig"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/modules"
)

// carriesModules reports whether a variant is the kernel that nodes get, and modules are built for it.
func (p Plan) carriesModules(variant Variant) bool {
	return len(p.Recipe.Modules) > 0 && (variant == Optimised || variant == Plain && !p.Recipe.Optimisation.Profiled())
}

// signingKey is made by kbuild where there is none. It is this build's: what it signed is told apart from what any other build
// did, and nobody can sign for this kernel later.
func (s site) signingKey() string { return filepath.Join(s.obj, "certs/signing_key.pem") }

// externalModules builds the recipe's modules against the kernel that was just linked, signs and packs them.
func (b *Builder) externalModules(ctx context.Context, source Source, at site, watch Watch, out string) (_ []modules.Package, err error) {
	date, err := source.Date()
	if err != nil {
		return nil, err
	}
	if watch.Log == nil {
		watch.Log = io.Discard
	}
	environment := b.reproducible(date)
	if err := b.runMake(ctx, environment, at, watch, nil, "modules"); err != nil {
		return nil, err
	}
	stage := filepath.Join(out, "stage")
	defer func() { err = errors.Join(err, os.RemoveAll(stage)) }()
	if err := b.runMake(ctx, environment, at, watch, nil, "modules_install", "INSTALL_MOD_PATH="+stage, "INSTALL_MOD_STRIP=1"); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(at.obj, "include/config/kernel.release"))
	if err != nil {
		return nil, fmt.Errorf("release: %w", err)
	}
	list := modules.List{Release: strings.TrimSpace(string(text))}
	tree := list.Tree(stage)
	var names []string
	for _, m := range at.plan.Modules {
		p := packageBuild{builder: b, at: at, source: m, release: list.Release, environment: environment, log: watch.Log,
			tree: filepath.Join(out, "package")}
		built, err := p.run(ctx, filepath.Join(tree, "updates"))
		if err = errors.Join(err, os.RemoveAll(p.tree)); err != nil {
			return nil, fmt.Errorf("modules of %q: %w", m.name(), err)
		}
		list.Packages = append(list.Packages, built)
		if len(m.Load) == 0 {
			names = append(names, built.Modules...)
		}
		if err := m.loads(built.Modules); err != nil {
			return nil, fmt.Errorf("modules of %q: %w", m.name(), err)
		}
		names = append(names, m.Load...)
	}
	if _, err := output(ctx, "depmod", "-b", stage, "-F", filepath.Join(at.obj, "System.map"), list.Release); err != nil {
		return nil, err
	}
	opened, err := openModuleTree(ctx, stage, list.Release)
	if err != nil {
		return nil, err
	}
	if list.Load, err = opened.loadOrder(names); err != nil {
		return nil, err
	}
	file, err := os.Create(filepath.Join(out, modules.ArchiveFile))
	if err != nil {
		return nil, err
	}
	return list.Packages, errors.Join(modules.Pack(file, list, stage), file.Close())
}

// packageBuild builds one package's modules.
type packageBuild struct {
	builder     *Builder
	at          site
	source      moduleSource
	release     string
	environment []string
	log         io.Writer
	// tree is the folder for all of it, dir the one in it where dkms would build.
	tree, dir string
}

// run leaves the signed modules in the folder to.
func (p packageBuild) run(ctx context.Context, to string) (modules.Package, error) {
	none := modules.Package{}
	config, err := kconfig.ReadConfig(filepath.Join(p.at.obj, ".config"))
	if err != nil {
		return none, err
	}
	opened := filepath.Join(p.tree, "opened")
	if err := p.open(ctx, opened); err != nil {
		return none, err
	}
	conf, err := readDKMS(ctx, opened, p.tree, p.release, p.at.obj, config)
	if err != nil {
		return none, err
	}
	if !filepath.IsLocal(filepath.Join(conf.Name, conf.Version)) {
		return none, fmt.Errorf("dkms.conf: PACKAGE_NAME %q and PACKAGE_VERSION %q are no names of folders", conf.Name, conf.Version)
	}
	p.dir = filepath.Join(p.tree, conf.Name, conf.Version, "build")
	if err := errors.Join(os.MkdirAll(filepath.Dir(p.dir), 0o755), os.Rename(opened, p.dir)); err != nil {
		return none, err
	}
	for _, patch := range conf.Patches {
		if said, err := Output(ctx, p.dir, "patch", "-p1", "--batch", "--forward", "-i", filepath.Join("patches", patch)); err != nil {
			return none, fmt.Errorf("patch %q: %w\n%s", patch, err, said)
		}
	}
	if conf.Before != "" {
		if err := p.shell(ctx, "./"+strings.TrimPrefix(conf.Before, "./")); err != nil {
			return none, err
		}
	}
	if err := p.shell(ctx, p.command(conf.Make)); err != nil {
		return none, err
	}
	built := modules.Package{Name: conf.Name, Version: p.source.Version}
	for _, module := range conf.Modules {
		name, err := p.take(ctx, filepath.Join(p.dir, module+".ko"), to, config)
		if err != nil {
			return none, err
		}
		built.Modules = append(built.Modules, name)
	}
	return built, nil
}

// open puts the package's source into the folder to.
func (p packageBuild) open(ctx context.Context, to string) error {
	if err := errors.Join(os.RemoveAll(p.tree), os.MkdirAll(p.tree, 0o755)); err != nil {
		return err
	}
	from, err := p.builder.packageSource(ctx, p.source)
	if err != nil {
		return err
	}
	return os.CopyFS(to, os.DirFS(from))
}

// command is the package's own, for this kernel and with all CPUs, as dkms calls it.
func (p packageBuild) command(own string) string {
	parallel := "make -j" + strconv.Itoa(max(1, p.builder.Jobs)) + " KERNELRELEASE=" + p.release
	if own == "" {
		return parallel + " -C " + p.at.obj + " M=" + p.dir
	}
	if rest, is := strings.CutPrefix(own, "make"); is {
		return parallel + rest
	}
	return own
}

// shell runs a command of the package, with the kernel's own compiler.
func (p packageBuild) shell(ctx context.Context, text string) error {
	variables := append([]string{"ARCH=x86_64"}, p.at.plan.tools(Optimised)...) // no compiler cache: paths are not the kernel's
	environment := append(slices.Clone(p.environment), "kernelver="+p.release, "kernel_source_dir="+p.at.obj, "arch=x86_64",
		"MAKEFLAGS= -- "+strings.Join(variables, " "))
	argv, hindrance := p.privately(ctx, text)
	cmd := command(ctx, environment, argv[0], argv[1:]...)
	cmd.Dir = p.dir
	tail, err := pipeMake(cmd, p.log, nil)
	if err == nil {
		return nil
	}
	if hindrance != nil && strings.Contains(tail, libModules) {
		err = fmt.Errorf("%w; the package looks for the kernel in %s, where this machine cannot show it (%w): allow user namespaces "+
			"(sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone), or build as root outside of a container", err, libModules, hindrance)
	}
	return &BuildError{Target: fmt.Sprintf("modules of %q", p.source.name()), Tail: tail, Err: stopped(ctx, err)}
}

// take checks that a module is of this kernel, signs it and puts it into the folder.
func (p packageBuild) take(ctx context.Context, file, to string, config kconfig.Config) (string, error) {
	if !exists(file) {
		return "", fmt.Errorf("the build ended well and made no %s", path.Base(file))
	}
	name, magic, err := moduleInfo(file)
	if err != nil {
		return "", fmt.Errorf("%s: %w", path.Base(file), err)
	}
	if release, _, _ := strings.Cut(magic, " "); release != p.release {
		return "", fmt.Errorf("%s was built for kernel %q, not %q", path.Base(file), release, p.release)
	}
	if _, err := output(ctx, "strip", "--strip-debug", file); err != nil {
		return "", err
	}
	if config.On("MODULE_SIG") {
		key := p.at.signingKey()
		if _, err := output(ctx, filepath.Join(p.at.obj, "scripts/sign-file"), "sha256", key, strings.TrimSuffix(key, ".pem")+".x509", file); err != nil {
			return "", err
		}
	}
	return name, errors.Join(os.MkdirAll(to, 0o755), copyFile(file, filepath.Join(to, path.Base(file))))
}

// moduleInfo is the name and the version magic that a module has inside.
func moduleInfo(path string) (name, magic string, err error) {
	file, err := elf.Open(path)
	if err != nil {
		return "", "", err
	}
	defer func() { _ = file.Close() }() // only read from
	section := file.Section(".modinfo")
	if section == nil {
		return "", "", errors.New("it is no kernel module")
	}
	data, err := section.Data()
	if err != nil {
		return "", "", err
	}
	for entry := range strings.SplitSeq(string(data), "\x00") {
		switch key, value, _ := strings.Cut(entry, "="); key {
		case "name":
			name = value
		case "vermagic":
			magic = value
		}
	}
	if name == "" || magic == "" {
		return "", "", errors.New("it has no name or no vermagic")
	}
	return name, magic, nil
}
