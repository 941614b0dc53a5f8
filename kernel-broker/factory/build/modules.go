// SPDX-License-Identifier: Apache-2.0

package build

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// loadOrderFile lists the copied modules so that insmod, one after the other,
// always finds what the next one needs.
const loadOrderFile = "load-order"

// nodeModules are what a virtual node needs to find its root and its network
// and to run Slurm. A crc32c implementation is asked for by name at run time,
// so that no dependency leads to it.
var nodeModules = []string{
	"9p", "9pnet_virtio", "af_packet", "crc32c_generic", "ext4", "i6300esb",
	"loop", "overlay", "virtio_blk", "virtio_net", "virtio_pci", "virtio_rng",
}

// moduleTree is lib/modules/<release> of an opened package.
type moduleTree struct {
	dir     string
	release string
	builtin []string
	// needs maps a module's path below dir to those it needs, in the order
	// of modules.dep: the last has to be loaded first.
	needs map[string][]string
	// place maps a module's name to its path.
	place map[string]string
}

func openModuleTree(ctx context.Context, root, release string) (*moduleTree, error) {
	dir := filepath.Join(root, "lib/modules", release)
	builtin, err := readBuiltin(filepath.Join(dir, "modules.builtin"))
	if err != nil {
		return nil, err
	}
	tree := &moduleTree{
		dir: dir, release: release, builtin: builtin,
		needs: map[string][]string{}, place: map[string]string{},
	}
	dependencies := filepath.Join(dir, "modules.dep")
	if !exists(dependencies) {
		// A package that was not installed has no modules.dep yet.
		if _, err := output(ctx, "depmod", "-b", root, release); err != nil {
			return nil, err
		}
	}
	file, err := os.Open(dependencies)
	if err != nil {
		return nil, fmt.Errorf("modules: %w", err)
	}
	defer func() { _ = file.Close() }() // only read from
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		module, needs, ok := strings.Cut(lines.Text(), ":")
		if !ok {
			return nil, fmt.Errorf("modules.dep: line %q", lines.Text())
		}
		tree.needs[module] = strings.Fields(needs)
		tree.place[moduleName(module)] = module
	}
	return tree, lines.Err()
}

// modules of the whole package, by path.
func (t *moduleTree) modules() []string { return slices.Sorted(maps.Keys(t.needs)) }

// filesystems among the modules, by the aliases that mount asks for.
func (t *moduleTree) filesystems() ([]string, error) {
	data, err := os.ReadFile(filepath.Join(t.dir, "modules.alias"))
	if err != nil {
		return nil, fmt.Errorf("modules: %w", err)
	}
	names := []string{}
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if len(fields) != 3 || fields[0] != "alias" {
			continue
		}
		if name, ok := strings.CutPrefix(fields[1], "fs-"); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// loadOrder returns the needed modules and all they need, dependencies first.
func (t *moduleTree) loadOrder(names []string) ([]string, error) {
	var order []string
	seen := map[string]bool{}
	builtin := map[string]bool{}
	for _, module := range t.builtin {
		builtin[moduleName(module)] = true
	}
	for _, name := range names {
		module, found := t.place[name]
		if !found {
			if builtin[name] {
				continue
			}
			return nil, fmt.Errorf("module %q: the kernel %s has none of that name", name, t.release)
		}
		needs := t.needs[module]
		for i := len(needs) - 1; i >= -1; i-- {
			next := module
			if i >= 0 {
				next = needs[i]
			}
			if !seen[next] {
				seen[next] = true
				order = append(order, next)
			}
		}
	}
	return order, nil
}

// copyNeeded makes a small module tree in dir: lib/modules/<release> as
// modprobe wants it, and the load order as paths below it.
func (t *moduleTree) copyNeeded(ctx context.Context, dir string) error {
	order, err := t.loadOrder(nodeModules)
	if err != nil {
		return err
	}
	small := filepath.Join(dir, "lib/modules", t.release)
	files := append([]string{"modules.builtin", "modules.builtin.modinfo", "modules.order"}, order...)
	for _, file := range files {
		if err := copyFile(filepath.Join(t.dir, file), filepath.Join(small, file)); err != nil {
			return fmt.Errorf("module %q: %w", file, err)
		}
	}
	if _, err := output(ctx, "depmod", "-b", dir, t.release); err != nil {
		return err
	}
	list := strings.Join(order, "\n") + "\n"
	if err := os.WriteFile(filepath.Join(dir, loadOrderFile), []byte(list), 0o644); err != nil {
		return fmt.Errorf("modules: %w", err)
	}
	return nil
}
