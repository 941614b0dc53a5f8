// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// sysfs makes a tree of files and, for values that begin with ->, links.
func sysfs(t *testing.T, files map[string]string) string {
	t.Helper()
	sys := t.TempDir()
	for name, text := range files {
		path := filepath.Join(sys, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if err == nil && len(text) > 2 && text[:2] == "->" {
			err = os.Symlink(filepath.Join(sys, text[2:]), path)
		} else if err == nil {
			err = os.WriteFile(path, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return sys
}

func TestHardwareOfTheMachine(t *testing.T) {
	adapter := func(name, at, driver string) map[string]string {
		return map[string]string{
			"class/net/" + name + "/device": "->" + at, "class/net/" + name + "/carrier": "1\n",
			at + "/driver": "->bus/drivers/" + driver, "bus/drivers/" + driver + "/bind": "",
		}
	}
	for name, c := range map[string]struct {
		files []map[string]string
		want  kb.Hardware
	}{
		"a server": {[]map[string]string{{
			"class/dmi/id/sys_vendor": "Dell Inc.\n", "class/dmi/id/product_name": "PowerEdge R640\n", "class/dmi/id/board_name": "0CRT1G\n",
			"class/dmi/id/bios_version":   "2.10.2\n",
			"devices/pci0/nic/vendor":     "0x15b3\n",
			"devices/pci0/nic/device":     "0x1003\n",
			"devices/pci0/second/vendor":  "0x8086\n",
			"devices/pci0/second/device":  "0x1572\n",
			"class/net/lo/carrier":        "1\n",
			"class/net/eth9/carrier":      "0\n",
			"class/net/eth9/device":       "->devices/pci0/down",
			"devices/pci0/down/vendor":    "0x14e4\n",
			"devices/pci0/down/device":    "0x165f\n",
			"devices/pci0/down/driver":    "->bus/drivers/tg3",
			"bus/drivers/tg3/bind":        "",
			"class/net/vf0/carrier":       "1\n",
			"class/net/vf0/device":        "->devices/pci0/vf",
			"devices/pci0/vf/physfn":      "->devices/pci0/nic",
			"devices/pci0/second/ignored": "",
		}, adapter("eth0", "devices/pci0/nic", "mlx4_core"), adapter("eth1", "devices/pci0/second", "i40e")},
			kb.Hardware{Board: "Dell-Inc.-PowerEdge-R640-0CRT1G", Firmware: "2.10.2", NIC: "i40e@8086:1572+mlx4_core@15b3:1003+tg3@14e4:165f"}},
		"a virtual machine": {[]map[string]string{{
			"class/dmi/id/sys_vendor": "QEMU\n", "class/dmi/id/product_name": "Standard PC (Q35 + ICH9, 2009)\n",
			"devices/pci0/card/vendor": "0x1af4\n", "devices/pci0/card/device": "0x1000\n", "devices/pci0/card/virtio0/vendor": "0x1af4\n",
		}, adapter("eth0", "devices/pci0/card/virtio0", "virtio_net")},
			kb.Hardware{Board: "QEMU-Standard-PC-Q35-+-ICH9-2009", NIC: "virtio_net@1af4:1000"}},
		"no DMI":  {[]map[string]string{{"firmware/devicetree/base/model": "Ampere Mt. Jade\x00"}}, kb.Hardware{Board: "Ampere-Mt.-Jade"}},
		"nothing": {nil, kb.Hardware{}},
	} {
		files := map[string]string{}
		for _, some := range c.files {
			for k, v := range some {
				files[k] = v
			}
		}
		got, err := hardware(sysfs(t, files))
		if err != nil || got != c.want || got.Validate() != nil {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// However many adapters a node has, its hardware is one that the broker takes, and another's is another.
func TestHardwareOfManyAdapters(t *testing.T) {
	nics := map[string]bool{}
	for _, last := range []string{"1003", "1005"} {
		files := map[string]string{}
		for i := range 12 {
			at := fmt.Sprintf("devices/pci0/nic%d", i)
			files[fmt.Sprintf("class/net/eth%d/device", i)] = "->" + at
			files[at+"/vendor"], files[at+"/device"] = "0x15b3\n", fmt.Sprintf("0x20%02x\n", i)
			files[at+"/driver"], files["bus/drivers/a_driver_with_a_long_name/bind"] = "->bus/drivers/a_driver_with_a_long_name", ""
		}
		files["devices/pci0/nic11/device"] = "0x" + last + "\n"
		got, err := hardware(sysfs(t, files))
		if err != nil || got.Validate() != nil {
			t.Errorf("%+v, %v, %v", got, err, got.Validate())
		}
		nics[got.NIC] = true
	}
	if len(nics) != 2 {
		t.Errorf("two machines have one row: %v", nics)
	}
}
