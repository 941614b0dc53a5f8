// SPDX-License-Identifier: Apache-2.0

package lab

import (
	_ "embed"
	"fmt"
	"os"
	"strings"
)

//go:embed files/initrd-init.sh
var initrdInit []byte

// busybox is the nodes' userland; it must be the static one.
const busybox = "/bin/busybox"

// BootInitrd builds the initrd with which a kernel finds its root on a machine's disk. A kernel without modules needs
// none.
func BootInitrd(dir string) ([]byte, error) {
	k, err := kernelIn(dir)
	if err != nil {
		return nil, fmt.Errorf("kernel %q: %w", dir, err)
	}
	return buildInitrd(k)
}

// buildInitrd builds the small initrd of a kernel with modules: it loads the machine's modules and continues on the disk
// image. It is uncompressed, which boots fastest.
func buildInitrd(k Kernel) ([]byte, error) {
	modules, err := loadModules(k.Modules, bootModules)
	if err != nil {
		return nil, err
	}
	if len(modules) == 0 {
		return nil, fmt.Errorf("folder %q: none of the modules %s", k.Modules, strings.Join(bootModules, ", "))
	}
	box, err := os.ReadFile(busybox)
	if err != nil {
		return nil, fmt.Errorf("busybox: %w", err)
	}
	a := newArchive()
	for _, dir := range []string{"bin", "dev", "proc", "root", "modules"} {
		a.folder(dir)
	}
	a.device("dev/console", 5, 1)
	a.program("bin/busybox", box)
	a.program("init", initrdInit)
	var list strings.Builder
	for _, m := range modules {
		a.file("modules/"+m.name+".ko", m.text)
		fmt.Fprintln(&list, m.name)
	}
	a.file("modules/order", []byte(list.String()))
	return a.bytes()
}
