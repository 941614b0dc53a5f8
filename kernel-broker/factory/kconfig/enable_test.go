// SPDX-License-Identifier: Apache-2.0

package kconfig

import (
	"strings"
	"testing"
	"testing/fstest"
)

func TestEnable(t *testing.T) {
	tree, err := Read(fstest.MapFS{"Kconfig": {Data: []byte(`
config 64BIT
	bool "64 bit"
config X86_64
	def_bool y
	depends on 64BIT
config PCI
	bool "PCI"
config PTP
	tristate "Clock"
config PTP_OPTIONAL
	tristate
	default y if PTP=n
	default PTP
menuconfig ETHERNET
	bool "Ethernet"
if ETHERNET
config VENDOR
	bool "Vendor"
config CARD
	tristate "Card"
	depends on VENDOR && PCI
	depends on PTP_OPTIONAL
	select HELPER
config OTHER
	tristate "Other architecture"
	depends on VENDOR && (ARM || SPARC)
endif
config HELPER
	tristate
config USES_HELPER
	bool "Uses"
	depends on X86_64 && HELPER
config LEFT
	bool "Left"
	depends on RIGHT
config RIGHT
	bool "Right"
	depends on LEFT
config AAA
	bool "Shown to experts" if EXPERT
	default y
config EMBEDDED
	bool "Embedded"
	select EXPERT
config EXPERT
	bool "Expert"
config NEEDS_AAA
	bool "Needs"
	depends on AAA
config SIZE
	int "Size"
`)}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, want, wrong string }{
		{name: "CARD", want: "CARD ETHERNET PCI VENDOR"},
		{name: "64BIT"},
		{name: "X86_64"},
		{name: "HELPER", wrong: "only another option can select it"},
		{name: "USES_HELPER", wrong: "HELPER"},
		{name: "OTHER", wrong: "depends on VENDOR && (ARM || SPARC)"},
		{name: "LEFT", wrong: "depends on itself"},
		{name: "SIZE", wrong: "number"},
		{name: "NOTHING", wrong: "no Kconfig file"},
	} {
		e := tree.Enabling(Config{"64BIT": "y"})
		got, err := e.Enable(c.name)
		if c.wrong != "" {
			if err == nil || !strings.Contains(err.Error(), c.wrong) {
				t.Errorf("%s: %v, %v, want %q", c.name, got, err, c.wrong)
			}
			if e.Config.On("VENDOR") {
				t.Errorf("%s: a part stayed on", c.name)
			}
			continue
		}
		if err != nil || strings.Join(got, " ") != c.want || !e.Config.On(c.name) {
			t.Errorf("%s: %v, %v, want %q", c.name, got, err, c.want)
		}
	}
	e := tree.Enabling(Config{"EMBEDDED": "y"})
	if got, err := e.Enable("NEEDS_AAA"); err != nil || strings.Join(got, " ") != "AAA NEEDS_AAA" {
		t.Errorf("what experts see is off unless asked for: %v, %v", got, err)
	}
	e = tree.Enabling(Config{"64BIT": "y"})
	if got, err := e.Enable("NEEDS_AAA"); err != nil || strings.Join(got, " ") != "NEEDS_AAA" {
		t.Errorf("what nobody sees is on by default: %v, %v", got, err)
	}
	if _, err := e.Enable("CARD"); err != nil || !e.Config.On("HELPER") {
		t.Errorf("selected: %v, %v", e.Config, err)
	}
	if got, err := e.Enable("USES_HELPER"); err != nil || strings.Join(got, " ") != "USES_HELPER" {
		t.Errorf("after what selects its need: %v, %v", got, err)
	}
}
