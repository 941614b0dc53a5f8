// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/inventory"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/slim"
)

// The factory reads what nodes print.
func TestFactoryReadsHardwareReports(t *testing.T) {
	one, err := agentctl("hardware", "--node", "n1")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(one, "\n") != 1 {
		t.Errorf("a report has more than one line, and two may mix: %q", one)
	}
	other, err := agentctl("hardware", "--node", "n0")
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := slim.ReadNodes(strings.NewReader(one + other))
	if err != nil {
		t.Fatal(err)
	}
	seen, err := inventory.ReadHardware("/proc", "/sys", "n1")
	if err != nil {
		t.Fatal(err)
	}
	if len(nodes) != 2 || nodes[0].Name != "n0" || !reflect.DeepEqual(nodes[1], seen) {
		t.Errorf("printed %+v, read %+v", seen, nodes)
	}
}

// What the agent writes the factory reads, whatever a driver is called.
func FuzzHardwareRoundTrip(f *testing.F) {
	for _, name := range []string{"i8042 kbd", "Generic PHY", "ahci", "a\nb", "\x1b[2J", "\xff", strings.Repeat("x", 200)} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		proc, sys := t.TempDir(), t.TempDir()
		for path, text := range map[string]string{"modules": "", "self/mountinfo": "22 1 254:0 / / rw - ext4 /dev/vda rw\n", "cmdline": "root=/dev/vda\n", "meminfo": "MemTotal: 1 kB\n"} {
			write(t, filepath.Join(proc, path), text)
		}
		write(t, filepath.Join(sys, "devices/system/cpu/online"), "0\n")
		for i, driver := range []string{"atkbd", name} {
			device := filepath.Join(sys, "bus/serio/devices", fmt.Sprintf("serio%d", i))
			if err := errors.Join(os.MkdirAll(device, 0o755), os.MkdirAll(filepath.Join(sys, "bus/serio/drivers"), 0o755)); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink("../../drivers/"+driver, filepath.Join(device, "driver")); err != nil {
				t.Skip("no name of a folder")
			}
		}
		report, err := inventory.ReadHardware(proc, sys, "n1")
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		if err := inventory.Write(&out, report); err != nil {
			t.Fatal(err)
		}
		nodes, err := slim.ReadNodes(strings.NewReader(out.String()))
		if err != nil || len(nodes) != 1 || !slices.Contains(nodes[0].Drivers, "atkbd") {
			t.Errorf("%q: %+v, %v", out.String(), nodes, err)
		}
	})
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

func TestHardwareUsage(t *testing.T) {
	var usage usageError
	if _, err := agentctl("hardware", "n1"); !errors.As(err, &usage) {
		t.Errorf("an argument: %v", err)
	}
	if _, err := agentctl("hardware", "--sys", t.TempDir()); err == nil || errors.As(err, &usage) {
		t.Errorf("no sysfs: %v", err)
	}
}
