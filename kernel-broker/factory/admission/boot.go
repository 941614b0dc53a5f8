// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/vm"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/modules"
)

//go:embed boot.sh
var bootScript string

const (
	bootLimit  = 20 * time.Minute // on a busy machine, under emulation
	bootMemory = 768              // two kernels fit
	kexecTool  = "/usr/sbin/kexec"
)

// Boot is what a guest showed.
type Boot struct {
	Release, BuildID string
	// Drivers are those that have registered with a bus, and file systems.
	Drivers []string
	Took    time.Duration
	// loaded are the modules, one in a line.
	loaded string
}

// Try boots the image in a virtual machine, where it has to say what the
// finding says, and to load itself with kexec. console gets what it prints and
// may be nil; the folder is for files that may be removed afterwards.
func Try(ctx context.Context, image string, f Finding, folder string, console io.Writer) (*Boot, error) {
	return try(ctx, image, f, folder, console, bootLimit)
}

func try(ctx context.Context, image string, f Finding, folder string, console io.Writer, limit time.Duration) (*Boot, error) {
	begun := time.Now()
	initrd := filepath.Join(folder, "initrd")
	root := vm.Root{Script: bootScript, Files: []vm.File{{Path: kexecTool, Source: kexecTool}, {Path: "/kernel", Source: image}}}
	var list modules.List
	if f.Modules != "" {
		var err error
		if list, root.Modules, err = modules.UnpackFile(f.Modules, filepath.Join(folder, "modules")); err != nil {
			return nil, fmt.Errorf("boot test: %w", err)
		}
	}
	if err := vm.BuildInitrd(ctx, root, initrd); err != nil {
		return nil, fmt.Errorf("boot test: %w", err)
	}
	result, err := vm.Run(ctx, vm.Guest{Kernel: image, Initrd: initrd, MemoryMiB: bootMemory, Limit: limit, Console: console},
		filepath.Join(folder, "guest"))
	var failure *vm.BootError
	if errors.As(err, &failure) {
		return nil, fmt.Errorf("boot test: it does not boot: %w: %w", err, kb.ErrInvalid)
	}
	if err != nil {
		return nil, fmt.Errorf("boot test: %w", err)
	}
	b, err := readBoot(result.Files)
	if err != nil {
		return nil, fmt.Errorf("boot test: %w", err)
	}
	b.Took = time.Since(begun)
	switch {
	case b.Release != f.Release:
		err = fmt.Errorf("it runs as %q, its header says %q", b.Release, f.Release)
	case b.BuildID != f.BuildID:
		err = fmt.Errorf("its running build id is %q, the one inside is %s", b.BuildID, f.BuildID)
	case len(list.Missing(b.loaded)) > 0:
		err = fmt.Errorf("it boots and does not load modules %s", strings.Join(list.Missing(b.loaded), ", "))
	case result.ExitCode != 0:
		err = fmt.Errorf("it boots and cannot load a kernel with kexec: %s", lastLine(result.Files))
	}
	if err != nil {
		return nil, fmt.Errorf("boot test: %w: %w", err, kb.ErrInvalid)
	}
	return b, nil
}

// readBoot reads what the script left.
func readBoot(folder string) (*Boot, error) {
	text := map[string]string{}
	for _, name := range []string{"release", "build_id", "drivers", "modules"} {
		raw, err := vm.ReadText(filepath.Join(folder, name))
		if err != nil {
			return nil, err
		}
		text[name] = strings.TrimSpace(string(raw))
	}
	b := &Boot{Release: text["release"], BuildID: text["build_id"], loaded: text["modules"]}
	for _, name := range strings.Fields(text["drivers"]) {
		b.Drivers = append(b.Drivers, moduleName(name))
	}
	slices.Sort(b.Drivers)
	b.Drivers = slices.Compact(b.Drivers)
	return b, nil
}

// moduleName writes a driver's name as nodes write it.
func moduleName(driver string) string {
	switch name := strings.ReplaceAll(driver, "-", "_"); name {
	case "sd", "sr":
		return name + "_mod"
	default:
		return name
	}
}

func lastLine(folder string) string {
	raw, err := vm.ReadEnd(filepath.Join(folder, "kexec"))
	if err != nil {
		return "it said nothing"
	}
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	return lines[len(lines)-1]
}
