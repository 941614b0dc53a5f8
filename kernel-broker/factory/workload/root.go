// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/vm"
)

// Places says where things are on this host.
type Places struct {
	// Programs is the folder of our own programs, as make leaves them.
	Programs string
	// Cache is where packages are kept unpacked.
	Cache string
}

// Hooks are shell that runs in the guest around what counts.
type Hooks struct {
	// Before runs after the setup, After before the check. Either ends the
	// guest by failing.
	Before, After string
}

// Exit codes of the guest's script.
const (
	exitSetup  = 10
	exitBefore = 11
	exitRun    = 12
	exitAfter  = 13
	exitCheck  = 14
)

// marker is the program that meets a marker, which every guest gets.
const marker = "kbmark"

// folder is where the guest finds the workload's shell.
const folder = "/workload/"

// Root is the guest's root file system for one run, on a kernel with these
// modules (a folder as the factory leaves it, or empty).
func (w Workload) Root(ctx context.Context, places Places, p Parameters, modules string, hooks Hooks) (vm.Root, error) {
	root := vm.Root{Script: w.script(p)}
	for name, text := range map[string]string{
		"setup": w.Setup, "before": hooks.Before, "run": w.Run, "after": hooks.After, "check": w.Check,
	} {
		root.Files = append(root.Files, vm.File{Path: folder + name, Content: []byte(text)})
	}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(append([]string{marker}, w.Programs...)))) {
		source := filepath.Join(places.Programs, name)
		if _, err := os.Stat(source); err != nil {
			return vm.Root{}, fmt.Errorf("workload %q: program %q is not built: %w", w.Name, name, err)
		}
		root.Files = append(root.Files, vm.File{Path: "/usr/bin/" + name, Source: source})
	}
	for _, tool := range w.Tools {
		root.Files = append(root.Files, vm.File{Path: tool, Source: tool})
	}
	for path, text := range w.Config {
		root.Files = append(root.Files, vm.File{Path: path, Content: []byte(text)})
	}
	if err := w.addPackages(ctx, places, &root); err != nil {
		return vm.Root{}, fmt.Errorf("workload %q: %w", w.Name, err)
	}
	var err error
	if root.Modules, err = pickModules(modules, w.Modules); err != nil {
		return vm.Root{}, fmt.Errorf("workload %q: %w", w.Name, err)
	}
	return root, nil
}

// script runs the parts in turn. What the run prints is kept, and shown when
// something went wrong.
func (w Workload) script(p Parameters) string {
	var text strings.Builder
	fmt.Fprintf(&text, "export KB_SEED=%d KB_SIZE=%d KB_CPUS=%d\ncd /tmp || exit\n: >/out/regions\n", p.Seed, p.Size, w.CPUs)
	// With these, a comparison can say whether it is one of equals.
	text.WriteString(`for file in /sys/devices/system/cpu/vulnerabilities/*; do
	[ ! -f "$file" ] || echo "${file##*/}: $(cat "$file")"
done >/out/mitigations
`)
	for _, part := range []struct {
		name string
		exit int
	}{{"setup", exitSetup}, {"before", exitBefore}, {"run", exitRun}, {"after", exitAfter}, {"check", exitCheck}} {
		fmt.Fprintf(&text, "sh -e %s%s >>/out/output 2>&1 || { tail -n 30 /out/output; exit %d; }\n",
			folder, part.name, part.exit)
	}
	return text.String()
}

// addPackages unpacks the packages and adds the files that are asked for, a
// folder with all that is in it.
func (w Workload) addPackages(ctx context.Context, places Places, root *vm.Root) error {
	if len(w.Packages) == 0 {
		return nil
	}
	folders, err := unpackAll(ctx, places.Cache, w.Packages)
	if err != nil {
		return err
	}
	root.Libraries = folders
	for _, name := range w.Files {
		files, err := find(folders, name)
		if err != nil {
			return err
		}
		root.Files = append(root.Files, files...)
	}
	return nil
}

// find looks for a file or a folder in the first unpacked package that has it.
func find(folders []string, name string) ([]vm.File, error) {
	for _, folder := range folders {
		top := filepath.Join(folder, name)
		if _, err := os.Lstat(top); err != nil {
			continue
		}
		var files []vm.File
		err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			file := vm.File{Path: strings.TrimPrefix(path, folder)}
			switch {
			case d.IsDir():
				file.Mode = fs.ModeDir | 0o755
			case d.Type()&fs.ModeSymlink != 0:
				if file.Link, err = os.Readlink(path); err != nil {
					return err
				}
			default:
				file.Source = path
			}
			files = append(files, file)
			return nil
		})
		return files, err
	}
	return nil, fmt.Errorf("file %q is in none of the packages", name)
}

// unpackAll returns, for each package, the folder that it is unpacked in. What
// apt would download now, by name, version and digest, is the key, so that a
// new version of a package is another folder and nothing is downloaded twice.
func unpackAll(ctx context.Context, cache string, packages []string) ([]string, error) {
	said, err := build.Output(ctx, "", "apt-get", append([]string{"-q", "download", "--print-uris"}, packages...)...)
	if err != nil {
		return nil, err
	}
	folders := make([]string, 0, len(packages))
	for _, name := range packages {
		key, err := identity(said, name)
		if err != nil {
			return nil, fmt.Errorf("package %q: %w", name, err)
		}
		folder, err := build.Cache{Dir: cache}.Entry(ctx, "package", key, nil, func(dir string) error {
			_, err := build.Unpack(ctx, name, dir)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("package %q: %w", name, err)
		}
		folders = append(folders, folder)
	}
	return folders, nil
}

// identity finds the package among what apt would download: the file's name,
// which holds the version, and a digest of its line.
func identity(said, name string) (string, error) {
	for line := range strings.Lines(said) {
		// 'ADDRESS' FILE SIZE DIGEST; the address is this machine's own matter.
		fields := strings.Fields(line)
		if len(fields) != 4 || !strings.HasPrefix(fields[1], name+"_") {
			continue
		}
		sum := sha256.Sum256([]byte(strings.Join(fields[1:], " ")))
		return name + "-" + hex.EncodeToString(sum[:8]), nil
	}
	return "", fmt.Errorf("apt-get would not download it: %q", said)
}

// orderFile lists a kernel's modules, each after those that it depends on.
const orderFile = "load-order"

// pickModules finds the wanted modules and what they depend on, in an order
// that they can be inserted in. A kernel without modules has it all built in; a
// module that is not there may be built in too, so that is no mistake here.
func pickModules(folder string, wanted []string) ([]string, error) {
	if folder == "" || len(wanted) == 0 {
		return nil, nil
	}
	order, err := os.ReadFile(filepath.Join(folder, orderFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("modules: %w", err)
	}
	tops, err := filepath.Glob(filepath.Join(folder, "lib/modules/*/modules.dep"))
	if err != nil {
		return nil, fmt.Errorf("modules: %w", err)
	}
	if len(tops) != 1 {
		return nil, fmt.Errorf("modules: %d releases in %s", len(tops), folder)
	}
	dependencies, err := os.ReadFile(tops[0])
	if err != nil {
		return nil, fmt.Errorf("modules: %w", err)
	}
	picked := closure(string(dependencies), wanted)
	var paths []string
	for line := range strings.Lines(string(order)) {
		if line = strings.TrimSpace(line); picked[line] {
			paths = append(paths, filepath.Join(filepath.Dir(tops[0]), line))
		}
	}
	return paths, nil
}

// closure reads modules.dep, whose lines are "module: all that it needs".
func closure(dependencies string, wanted []string) map[string]bool {
	names := map[string]bool{}
	for _, name := range wanted {
		names[plain(name)] = true
	}
	picked := map[string]bool{}
	for line := range strings.Lines(dependencies) {
		module, needs, _ := strings.Cut(strings.TrimSpace(line), ":")
		if !names[plain(path.Base(module))] {
			continue
		}
		picked[module] = true
		for need := range strings.FieldsSeq(needs) {
			picked[need] = true
		}
	}
	return picked
}

// plain is a module's name without its ending, and with one kind of dash.
func plain(name string) string {
	name, _, _ = strings.Cut(name, ".ko")
	return strings.ReplaceAll(name, "-", "_")
}
