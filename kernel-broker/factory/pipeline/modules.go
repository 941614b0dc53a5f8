// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/graph"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/vm"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/modules"
)

const stepModules = "modules"

// loads adds the boot in which the kernel loads the modules that were built for it.
func (b *builder) loads(candidate string) {
	b.add(stepModules, "", Inputs{"guest": "insmod in order"}, map[string]string{"kernel": candidate}, emulate, attempt(loadModules))
}

// loadModules boots the kernel and has it load its modules. One that does not load is the kernel's fault.
func loadModules(ctx context.Context, kernel string, w *graph.Work) error {
	return aside(w, func(dir string) error {
		root := vm.Root{Script: "cut -d ' ' -f 1 /proc/modules >/out/modules\n"}
		list, files, err := modules.UnpackFile(filepath.Join(kernel, modules.ArchiveFile), filepath.Join(dir, "modules"))
		if err != nil {
			return err
		}
		root.Modules = files
		initrd := filepath.Join(dir, "initrd")
		if err := vm.BuildInitrd(ctx, root, initrd); err != nil {
			return err
		}
		w.Say("loading %d modules", len(list.Load))
		guest := vm.Guest{Kernel: filepath.Join(kernel, build.ImageFile), Initrd: initrd, Limit: bootLimit, Console: w.Log}
		result, err := vm.Run(ctx, guest, filepath.Join(dir, "guest"))
		if err != nil {
			return err
		}
		loaded, err := vm.ReadText(filepath.Join(result.Files, "modules"))
		if err != nil {
			return err
		}
		if missing := list.Missing(string(loaded)); len(missing) > 0 {
			said, err := vm.ReadEnd(result.Console)
			return errors.Join(err, &Fault{Stage: stageBoot, Reason: fmt.Sprintf("modules %s do not load", strings.Join(missing, ", ")), Console: string(said)})
		}
		return os.WriteFile(filepath.Join(w.Dir, "modules"), loaded, 0o644)
	})
}
