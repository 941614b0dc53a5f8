// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/proof"
)

func FuzzMemoryAndCPUs(f *testing.F) {
	f.Add("MemTotal:         495616 kB\nMemFree: 1 kB\n", "0-3,8\n", "root=UUID=../../x rootfstype=ext4")
	f.Add("MemTotal:\n", "0-", "root=")
	f.Add("MemTotal: 18446744073709551616 kB", "65535-65535,0-65535", "\"root=a b\"")
	dir := f.TempDir()
	meminfo, online := filepath.Join(dir, "meminfo"), filepath.Join(dir, cpuFolder, "online")
	if err := os.MkdirAll(filepath.Dir(online), 0o755); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, memoryText, cpuText, arguments string) {
		for path, text := range map[string]string{meminfo: memoryText, online: cpuText} {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := memory(meminfo); err == nil && memoryText == "" {
			t.Error("no memory is some")
		}
		if list, err := onlineCPUs(dir); err == nil && len(list) == 0 {
			t.Errorf("%q are no CPUs", cpuText)
		}
		// A name becomes part of a path below /sys.
		name := sourceName(proof.Value(proof.Split(arguments), "root"))
		if name != "" && name != filepath.Base(name) {
			t.Errorf("%q has the device %q", arguments, name)
		}
	})
}
