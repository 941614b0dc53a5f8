// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

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
