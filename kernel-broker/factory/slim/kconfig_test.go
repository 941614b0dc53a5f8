// SPDX-License-Identifier: Apache-2.0

package slim

import (
	"slices"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/kconfig"
)

func TestKconfig(t *testing.T) {
	_, options := readTree(t)
	if _, wrong := options.Symbols["NOT_A_SYMBOL"]; wrong {
		t.Error("help text was read as an entry")
	}
	aio := options.Symbols["AIO"]
	if aio == nil || !aio.Boolean || aio.Prompt != "Asynchronous I/O" || aio.Where != "kernel/Kconfig:14" || aio.Choice != 0 {
		t.Errorf("AIO: %+v", aio)
	}
	if fast := options.Symbols["FAST"]; fast == nil || fast.Choice == 0 {
		t.Errorf("FAST: %+v", fast)
	}
	if by := options.Selectors("CRC", treeConfig); !slices.Equal(by, []string{"X86"}) {
		t.Errorf("CRC is selected by %v", by)
	}
	if by := options.Selectors("CRC", kconfig.Config{"X86": "y"}); len(by) != 0 {
		t.Errorf("without PCI, CRC is selected by %v", by)
	}
}

func TestWithout(t *testing.T) {
	_, options := readTree(t)
	for name, test := range map[string]struct {
		off   string
		asked string
		want  string
	}{
		"nothing off":                           {want: ""},
		"what depends goes too":                 {off: "TCP", want: "TCP TCP_CUBIC"},
		"an if around an include":               {off: "NET", want: "DIAG NET TCP TCP_CUBIC TCP_DIAG"},
		"what only it selected, and its own":    {off: "AIO", want: "AIO HELPER HELPER_TABLE LATER"},
		"selected stays":                        {off: "TCP_DIAG", want: ""},
		"selected goes with its selector":       {off: "DIAG TCP_DIAG", want: "DIAG TCP_DIAG"},
		"set stays without its selector":        {off: "DIAG", want: "DIAG"},
		"not asked for: goes with its selector": {off: "DIAG", asked: "X86 PCI EXPERT BLOCK AIO NET TCP TCP_CUBIC HELPER_TABLE PCI_MMCONFIG", want: "DIAG TCP_DIAG"},
		"a condition on a select":               {off: "PCI", want: "CRC PCI PCI_MMCONFIG"},
	} {
		t.Run(name, func(t *testing.T) {
			var asked map[string]bool
			if test.asked != "" {
				asked = map[string]bool{}
				for _, symbol := range strings.Fields(test.asked) {
					asked[symbol] = true
				}
			}
			got := kconfig.SwitchedOff(treeConfig, options.Without(treeConfig, strings.Fields(test.off), asked))
			if strings.Join(got, " ") != test.want {
				t.Errorf("lost %v, want %s", got, test.want)
			}
		})
	}
}
