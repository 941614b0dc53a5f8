// SPDX-License-Identifier: Apache-2.0

package slim

import (
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/kconfig"
)

func TestParseKeepList(t *testing.T) {
	const head = "name: x\ndescription: words\n"
	for name, test := range map[string]struct{ text, fail string }{
		"good":               {text: head + "groups:\n  - reason: why\n    options: [A, B_*]\n"},
		"unknown key":        {text: head + "grops: []\n", fail: `keep/x.yaml: line 3: unknown key "grops"`},
		"no reason":          {text: head + "groups:\n  - options: [A]\n", fail: "group 1: it needs a reason"},
		"no options":         {text: head + "groups:\n  - reason: why\n", fail: "group 1: it needs a reason and options"},
		"prefix":             {text: head + "groups:\n  - reason: why\n    options:\n      - CONFIG_A\n", fail: "keep/x.yaml:6:"},
		"everything":         {text: head + "groups:\n  - reason: why\n    options: ['*']\n", fail: "is not an option's name"},
		"twice":              {text: head + "groups:\n  - reason: why\n    options:\n      - A\n      - A\n", fail: "keep/x.yaml:7: A stands already at keep/x.yaml:6"},
		"two documents":      {text: head + "groups:\n  - {reason: why, options: [A]}\n---\nname: y\n", fail: "more than one document"},
		"empty":              {text: "", fail: "empty file"},
		"name in upper case": {text: "name: X\ndescription: words\ngroups:\n  - {reason: why, options: [A]}\n", fail: "a name in lower case"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseKeepList("keep/x.yaml", []byte(test.text))
			if test.fail == "" && err != nil || test.fail != "" && (err == nil || !strings.Contains(err.Error(), test.fail)) {
				t.Fatalf("error %v, want %q", err, test.fail)
			}
		})
	}
}

func TestKeepOf(t *testing.T) {
	lists, err := ReadKeepLists(fstest.MapFS{"x.yaml": {Data: []byte(
		"name: x\ndescription: words\ngroups:\n  - reason: >-\n      many\n      words\n    options: [TCP_*, NET]\n  - {reason: other, options: [TCP_DIAG, GONE]}\n  - {reason: guess, assumed: true, options: [AIO]}\n")}})
	if err != nil {
		t.Fatal(err)
	}
	keep := KeepOf(lists, treeConfig, false)
	for symbol, want := range map[string]string{
		"TCP_CUBIC": "many words (keep-list x)", "TCP_DIAG": "many words (keep-list x)", "NET": "many words (keep-list x)", "TCP": "",
	} {
		if keep[symbol] != want {
			t.Errorf("%s: %q, want %q", symbol, keep[symbol], want)
		}
	}
	if keep["AIO"] == "" || KeepOf(lists, treeConfig, true)["AIO"] != "" {
		t.Error("what a list assumes stays until nodes report, and no longer")
	}
	_, options := readTree(t)
	unused := unusedOptions(lists, options)
	if len(unused) != 1 || unused[0].Pattern != "GONE" || unused[0].Where != "keep/x.yaml:8" {
		t.Errorf("unused: %+v", unused)
	}
	if _, err := ReadKeepLists(fstest.MapFS{}); err == nil {
		t.Error("a folder without keep-lists protects nothing and is no error")
	}
}

// TestCatalog reads the lists that are shipped, and looks for what may never
// be missing in them.
func TestCatalog(t *testing.T) {
	lists, err := ReadKeepLists(os.DirFS("../../../catalog/keep"))
	if err != nil {
		t.Fatal(err)
	}
	keep := KeepOf(lists, kconfig.Config{"MITIGATION_ITS": "y"}, true)
	for _, symbol := range strings.Fields("PCI ACPI PRINTK SERIAL_8250_CONSOLE KEXEC KEXEC_FILE CGROUPS MEMCG CPUSETS MITIGATION_ITS RETPOLINE X86_MCE IKCONFIG") {
		if keep[symbol] == "" {
			t.Errorf("no keep-list has %s", symbol)
		}
	}
}

// unusedOptions lists the keep-lists' names of options that no Kconfig file defines:
// a misspelt option protects nothing.
func unusedOptions(lists []KeepList, tree *kconfig.Tree) []KeepOption {
	var unused []KeepOption
	for _, list := range lists {
		for _, group := range list.Groups {
			for _, option := range group.Options {
				if !tree.Defines(option.Pattern) {
					unused = append(unused, option)
				}
			}
		}
	}
	return unused
}
