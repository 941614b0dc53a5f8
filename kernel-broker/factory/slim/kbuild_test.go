// SPDX-License-Identifier: Apache-2.0

package slim

import (
	"testing"
	"testing/fstest"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/kconfig"
)

func TestKbuild(t *testing.T) {
	kbuild, _ := readTree(t)
	for object, want := range map[string]string{
		"kernel/fork.o":              "",
		"kernel/exit.o":              "",
		"kernel/buffer.o":            "BLOCK",
		"kernel/no-block.o":          "!BLOCK",
		"kernel/aio.o":               "AIO",
		"net/socket.o":               "NET",
		"net/diag.o":                 "NET && DIAG",
		"net/tcp/in.o":               "NET && TCP",
		"net/tcp/cubic.o":            "NET && TCP && TCP_CUBIC",
		"arch/x86/pci/mmconfig_64.o": "PCI && PCI_MMCONFIG",
		"arch/x86/lib/crc.o":         "CRC",
		"arch/x86/kernel/head_64.o":  "",
		"lib/string.o":               "",
	} {
		gates, known := kbuild.Objects[object]
		if !known || len(gates) != 1 || gates[0].String() != want {
			t.Errorf("%s: gates %v, want %q", object, gates, want)
		}
	}
	if _, known := kbuild.Objects["net/tcp/tcp.o"]; known {
		t.Error("tcp.o is made of parts and counts as an object")
	}
	if gates := kbuild.Modules["tcp"]; len(gates) != 1 || gates[0].String() != "NET && TCP" {
		t.Errorf("module tcp: %v", gates)
	}
	for object, want := range map[string]bool{"kernel/buffer.o": true, "kernel/no-block.o": false, "net/tcp/out.o": true} {
		if built, known := kbuild.Built(object, treeConfig); built != want || !known {
			t.Errorf("%s: built %v, known %v", object, built, known)
		}
	}
}

func TestMakefileConditions(t *testing.T) {
	for text, want := range map[string]string{
		"ifdef CONFIG_A\nobj-y += x.o\nendif":                                       "A",
		"ifndef CONFIG_A\nobj-y += x.o\nendif":                                      "!A",
		"ifneq ($(CONFIG_A),)\nobj-y += x.o\nendif":                                 "A",
		"ifneq ($(CONFIG_A)$(CONFIG_B),)\nobj-y += x.o\nendif":                      "A|B",
		"ifeq ($(CONFIG_A)$(CONFIG_B),yy)\nobj-y += x.o\nendif":                     "A && B",
		"ifneq ($(filter y,$(CONFIG_A) $(CONFIG_B)),)\nobj-y += x.o\nendif":         "A|B",
		"ifeq ($(CONFIG_A), y)\nelse ifdef CONFIG_B\nobj-y += x.o\nendif":           "!A && B",
		"ifeq ($(CONFIG_A),y)\nifeq ($(CONFIG_B),y)\nobj-y += x.o\nendif\nendif":    "A && B",
		"ifeq ($(call cc-option, -mx),)\nobj-y += x.o\nendif":                       "",
		"ifeq ($(CONFIG_A),m)\nobj-y += x.o\nendif":                                 "",
		"obj-$(subst m,y,$(CONFIG_A)) += x.o":                                       "A",
		"obj-$(CONFIG_A)$(CONFIG_B) += x.o":                                         "A && B",
		"obj-$(CONFIG_A) += $(parts-y)\nparts-$(CONFIG_B) := x.o":                   "A && B",
		"obj-$(CONFIG_A) += $(parts)\nparts := x.o":                                 "A",
		"obj-$(CONFIG_A) += mod.o\nmod-objs := $(addprefix ./, x.o)":                "A",
		"define rule\nobj-y += y.o\nendef\nobj-$(CONFIG_A) += x.o # obj-y += z.o":   "A",
		"obj-$(CONFIG_A) += \\\n\t\tx.o \\\n\t\ty.o":                                "A",
		"obj-$(CONFIG_A) += $(self-y) x.o\nself-y := $(self-y)":                     "A",
		"ifdef CONFIG_A\nobj-y += x.o\nendif\nobj-$(CONFIG_A) += x.o\nobj-m += x.o": "A",
	} {
		files := fstest.MapFS{
			"Kbuild":            {Data: []byte(text)},
			"arch/x86/Makefile": {Data: nil},
		}
		kbuild, err := ReadKbuild(files)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		var got []string
		for _, gate := range kbuild.Objects["x.o"] {
			got = append(got, gate.String())
		}
		if len(got) != 1 || got[0] != want {
			t.Errorf("%q: gates %q, want %q", text, got, want)
		}
	}
}

func TestOtherArchitecturesNeverCount(t *testing.T) {
	kbuild, err := ReadKbuild(fstest.MapFS{
		"Kbuild":            {Data: []byte("ifeq ($(SRCARCH),arm)\nobj-y += x.o\nelse\nobj-$(CONFIG_A) += x.o\nendif\n")},
		"arch/x86/Makefile": {Data: nil},
	})
	if err != nil {
		t.Fatal(err)
	}
	for value, want := range map[string]bool{"n": false, "y": true} {
		if built, _ := kbuild.Built("x.o", kconfig.Config{"A": value}); built != want {
			t.Errorf("with A=%s built is %v", value, built)
		}
	}
}

func TestModularEnding(t *testing.T) {
	gates := Gates{endingNeeds("$(subst m,y,$(CONFIG_A))")}
	if !gates.hold(kconfig.Config{"A": "m"}) || (Gates{endingNeeds("$(CONFIG_A)")}).hold(kconfig.Config{"A": "m"}) {
		t.Error("a module is built in only where the makefile says so")
	}
}

func FuzzMakefile(f *testing.F) {
	for name, file := range tree {
		if name != "Kconfig" {
			f.Add(string(file.Data))
		}
	}
	f.Add("ifeq (a,b)\nelse\nelse\nendif\nendif\nobj-$(A)$(B)-$(C) += $(x) $($(x)) $(addprefix a) $(")
	f.Add("obj-y += ../ ./ // a/../../b/ x.o\nx-y := x.o $(x-y)")
	f.Fuzz(func(t *testing.T, text string) {
		kbuild, err := ReadKbuild(fstest.MapFS{
			"Kbuild": {Data: []byte(text)}, "arch/x86/Makefile": {Data: []byte(text)}, "lib/Makefile": {Data: []byte(text)},
		})
		if err != nil {
			return
		}
		for object, gates := range kbuild.Objects {
			if len(gates) == 0 {
				t.Fatalf("%s without a gate", object)
			}
		}
	})
}
