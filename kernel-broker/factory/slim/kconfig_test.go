// SPDX-License-Identifier: Apache-2.0

package slim

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

func TestKconfig(t *testing.T) {
	_, kconfig := readTree(t)
	if _, wrong := kconfig.Symbols["NOT_A_SYMBOL"]; wrong {
		t.Error("help text was read as an entry")
	}
	aio := kconfig.Symbols["AIO"]
	if aio == nil || !aio.Boolean || aio.Prompt != "Asynchronous I/O" || aio.Where != "kernel/Kconfig:14" || aio.Choice != 0 {
		t.Errorf("AIO: %+v", aio)
	}
	if fast := kconfig.Symbols["FAST"]; fast == nil || fast.Choice == 0 {
		t.Errorf("FAST: %+v", fast)
	}
	if by := kconfig.Selectors("CRC", treeConfig); !slices.Equal(by, []string{"X86"}) {
		t.Errorf("CRC is selected by %v", by)
	}
	if by := kconfig.Selectors("CRC", Config{"X86": "y"}); len(by) != 0 {
		t.Errorf("without PCI, CRC is selected by %v", by)
	}
}

func TestWithout(t *testing.T) {
	_, kconfig := readTree(t)
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
			got := Lost(treeConfig, kconfig.Without(treeConfig, strings.Fields(test.off), asked))
			if strings.Join(got, " ") != test.want {
				t.Errorf("lost %v, want %s", got, test.want)
			}
		})
	}
}

func TestExpressions(t *testing.T) {
	config := Config{"A": "y", "M": "m", "S": `"text"`, "N": "8"}
	for text, want := range map[string]bool{
		"A": true, "!A": false, "M": true, "B": false, "A && !B": true, "B || (A && M)": true,
		"A = y": true, "A != y": false, "M = m": true, "M=y": false, `S = "text"`: true, "N = 8": true,
		"B = n": true, "B = 'n'": true, "!(A || B)": false, "$(cc-option,-x)": true, "A &&": true, "A B": true, "": true,
		"N > 4": true,
	} {
		if got := readExpression(text).holds(config); got != want {
			t.Errorf("%q holds: %v", text, got)
		}
	}
}

func FuzzKconfig(f *testing.F) {
	for name, file := range tree {
		if strings.HasSuffix(name, "Kconfig") {
			f.Add(string(file.Data))
		}
	}
	f.Add("if ((((\nendif\nendif\nconfig\nconfig A\n\tdefault \\\n")
	f.Add("source \"Kconfig\"\n")
	f.Fuzz(func(t *testing.T, text string) {
		kconfig, err := ReadKconfig(fstest.MapFS{"Kconfig": {Data: []byte(text)}})
		if err != nil {
			return
		}
		config := Config{}
		for symbol := range kconfig.Symbols {
			config[symbol] = "y"
		}
		for symbol := range kconfig.Symbols {
			after := kconfig.Without(config, []string{symbol}, nil)
			if len(after) != len(config) {
				t.Fatal("a configuration changed its symbols")
			}
			break
		}
	})
}
