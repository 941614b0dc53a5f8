// SPDX-License-Identifier: Apache-2.0

package sidebyside

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/vm"
)

const kvmDevice = "/dev/kvm"

// probeLimit is generous for a guest on the host's own processor, which starts
// in a second.
const probeLimit = time.Minute

// kvmUsable says whether this host has a device for guests on its own processor
// that we may open. Where there is none, no guest can run that way; where there
// is one, it may still not.
func kvmUsable() error {
	file, err := os.OpenFile(kvmDevice, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("kvm: %w", err)
	}
	return file.Close()
}

// probeKVM finds out whether a kernel comes up on the host's own processor, in
// the only way that is certain: it is started. In some clouds the device is
// there, and each guest hangs. Without an error it came up; the folder is the
// probe's own.
func probeKVM(ctx context.Context, kernel, dir string) error {
	if err := kvmUsable(); err != nil {
		return err
	}
	initrd := filepath.Join(dir, "initrd")
	if err := vm.BuildInitrd(ctx, vm.Root{Script: ": >/out/up\n"}, initrd); err != nil {
		return err
	}
	result, err := vm.Run(ctx, vm.Guest{Kernel: kernel, Initrd: initrd, KVM: true, Limit: probeLimit}, filepath.Join(dir, "run"))
	if err != nil {
		return fmt.Errorf("kvm: %w", err)
	}
	if _, err := os.Stat(filepath.Join(result.Files, "up")); err != nil {
		return fmt.Errorf("kvm: the guest came up and left nothing: %w", err)
	}
	return nil
}
