// SPDX-License-Identifier: Apache-2.0

package slim

import (
	"testing"
	"testing/fstest"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/kconfig"
)

// tree is a small kernel: makefiles and Kconfig files in the forms that the
// real one has.
var tree = fstest.MapFS{
	"Kbuild":            {Data: []byte("obj-y += kernel/\nobj-$(CONFIG_NET)\t+= net/\nobj-y += $(ARCH_CORE)\n")},
	"arch/x86/Kbuild":   {Data: []byte("obj-y += kernel/\nobj-$(CONFIG_KVM) += kvm/\n")},
	"arch/x86/Makefile": {Data: []byte("drivers-$(CONFIG_PCI) += arch/x86/pci/\nlibs-y += arch/x86/lib/\n")},
	"arch/x86/pci/Makefile": {Data: []byte(
		"obj-y := common.o early.o\nobj-$(CONFIG_PCI_MMCONFIG) += mmconfig_$(BITS).o\n")},
	"arch/x86/lib/Makefile":    {Data: []byte("lib-y := delay.o\nlib-$(CONFIG_CRC) += crc.o\n")},
	"arch/x86/kernel/Makefile": {Data: []byte("obj-y := head_$(BITS).o # the first\n")},
	"lib/Makefile":             {Data: []byte("lib-y := string.o\nobj-$(CONFIG_CRC) += crc.o\n")},
	"kernel/Makefile": {Data: []byte(`
obj-y := fork.o \
	exit.o
ifeq ($(CONFIG_BLOCK),y)
obj-y += buffer.o
else
obj-y += no-block.o
endif
obj-$(CONFIG_AIO) += aio.o
CFLAGS_fork.o := -DX=$(CONFIG_AIO)
`)},
	"net/Makefile": {Data: []byte(`
obj-$(CONFIG_NET) += socket.o
obj-$(CONFIG_TCP) += tcp/
obj-$(CONFIG_DIAG) += diag.o
`)},
	"net/tcp/Makefile": {Data: []byte(`
obj-$(CONFIG_TCP) += tcp.o
tcp-y := in.o out.o
tcp-$(CONFIG_TCP_CUBIC) += cubic.o
`)},
	"Kconfig": {Data: []byte(`mainmenu "small"
source "kernel/Kconfig"
if NET || BROKEN
source "net/Kconfig"
endif # NET
source "arch/$(SRCARCH)/Kconfig"
`)},
	"arch/x86/Kconfig": {Data: []byte(`config X86
	def_bool y
	select CRC	if	PCI

config PCI
	bool "PCI support"
	help
	  What depends on it here
	  config NOT_A_SYMBOL
	    is text.

config PCI_MMCONFIG
	bool "PCI memory" if EXPERT
	default y
	depends on PCI

config CRC
	bool
`)},
	"kernel/Kconfig": {Data: []byte(`
config EXPERT
	bool "Expert"

menu "Things"
	depends on EXPERT || X86

config BLOCK
	bool "Block layer"

comment "is a word on its own"
	depends on NEVER

config AIO
	tristate "Asynchronous \
I/O"
	imply LATER
	select HELPER

config HELPER
	bool

config HELPER_TABLE
	bool "Table of the helper"
	depends on HELPER

endmenu

choice
	prompt "Speed"
	default FAST

config FAST
	bool "Fast"

config SLOW
	bool "Slow"

endchoice

config NET
	bool "Networking"

config LATER
	bool
`)},
	"net/Kconfig": {Data: []byte(`
config TCP
	bool "TCP"

config TCP_CUBIC
	bool "Cubic"
	depends on (TCP && !SLOW)

config DIAG
	tristate "Socket diagnosis"
	depends on NET != n
	select TCP_DIAG

config TCP_DIAG
	bool "TCP diagnosis"
	depends on TCP
`)},
}

var treeConfig = kconfig.Config{
	"X86": "y", "PCI": "y", "PCI_MMCONFIG": "y", "CRC": "y", "EXPERT": "y", "BLOCK": "y", "AIO": "y", "HELPER": "y",
	"HELPER_TABLE": "y", "FAST": "y", "NET": "y", "TCP": "y", "TCP_CUBIC": "y", "DIAG": "y", "TCP_DIAG": "y", "LATER": "y",
	"KVM": "m", "SLOW": "n",
}

func readTree(t testing.TB) (*Kbuild, *kconfig.Tree) {
	t.Helper()
	kbuild, err := ReadKbuild(tree)
	if err != nil {
		t.Fatal(err)
	}
	options, err := kconfig.Read(tree)
	if err != nil {
		t.Fatal(err)
	}
	return kbuild, options
}
