// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// FuzzRead fills /proc and /sys with arbitrary text, as firmware and drivers may. The report for the factory is one
// line, and no name in it contains a blank.
func FuzzReadHardware(f *testing.F) {
	f.Add("virtio_net 65536 0 - Live 0x0\n", "virtio:d00000002v00001AF4\n", "0x8086\n", "0x29c0\n", "22 1 254:0 / / rw - ext4 /dev/vda rw\n", "MemTotal: 495616 kB\n", "0-3,8\n")
	f.Add("", "", "", "", "22 1 254:0 / / rw - ext4 /dev/vda rw\n", "MemTotal: 1 kB\n", "0\n")
	f.Add("x y", "a b\nc", "8086", "0X1", "1 2 3", "MemTotal: x", "0-65536")
	proc, sys := f.TempDir(), f.TempDir()
	device := filepath.Join("bus", "pci", "devices", "0000:00:01.0")
	for _, dir := range []string{filepath.Join(proc, "self"), filepath.Join(sys, device), filepath.Join(sys, "devices/system/cpu")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			f.Fatal(err)
		}
	}
	f.Fuzz(func(t *testing.T, modules, alias, vendor, number, mounts, memory, cpus string) {
		var errs []error
		for path, text := range map[string]string{
			filepath.Join(proc, "modules"): modules, filepath.Join(proc, "self/mountinfo"): mounts, filepath.Join(proc, "cmdline"): "root=/dev/vda\n",
			filepath.Join(proc, "meminfo"): memory, filepath.Join(sys, "devices/system/cpu/online"): cpus,
			filepath.Join(sys, device, "modalias"): alias, filepath.Join(sys, device, "vendor"): vendor, filepath.Join(sys, device, "device"): number,
		} {
			errs = append(errs, os.WriteFile(path, []byte(text), 0o600))
		}
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		n, err := ReadHardware(proc, sys, "n1")
		if err != nil {
			return
		}
		var out bytes.Buffer
		if err := Write(&out, n); err != nil {
			t.Fatal(err)
		}
		var back []kb.DeviceReport
		if err := json.Unmarshal(out.Bytes(), &back); err != nil || len(back) != 1 || strings.Count(out.String(), "\n") != 1 {
			t.Fatalf("%s, %v", out.String(), err)
		}
		for _, list := range [][]string{n.PCI, n.Modaliases} {
			if slices.ContainsFunc(list, func(name string) bool { return strings.ContainsAny(name, " \t\r\n") || name == "" }) {
				t.Errorf("a name with a blank: %q", list)
			}
		}
	})
}
