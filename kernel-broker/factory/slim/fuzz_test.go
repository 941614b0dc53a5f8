// SPDX-License-Identifier: Apache-2.0

package slim

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func FuzzParseKeepList(f *testing.F) {
	const head = "name: x\ndescription: why\n"
	f.Add([]byte(head+"groups:\n  - reason: many\n      words\n    assumed: true\n    options: [NET, TCP_*, \"9P_FS\"]\n"), true)
	f.Add([]byte(head+"groups:\n  - reason: &a why\n    options:\n      - *a\n      - null\n"), false)
	f.Add([]byte("name: &a [*a]\n"), false)
	f.Fuzz(func(t *testing.T, text []byte, reported bool) {
		list, err := ParseKeepList("keep/x.yaml", text)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "keep/x.yaml:") {
				t.Errorf("%v does not name the file", err)
			}
			return
		}
		seen := map[string]bool{}
		for _, group := range list.Groups {
			if strings.TrimSpace(group.Reason) == "" || len(group.Options) == 0 {
				t.Errorf("a group without reason or options: %+v", group)
			}
			for _, option := range group.Options {
				line, err := strconv.Atoi(strings.TrimPrefix(option.Where, "keep/x.yaml:"))
				if err != nil || line < 1 || line > bytes.Count(text, []byte("\n"))+1 || seen[option.Pattern] {
					t.Errorf("%q at %q, of %d lines", option.Pattern, option.Where, bytes.Count(text, []byte("\n"))+1)
				}
				seen[option.Pattern] = true
			}
		}
		// A reason becomes a comment of one line.
		for symbol, reason := range KeepOf([]KeepList{list}, treeConfig, reported) {
			if strings.ContainsAny(symbol+reason, "\r\n") || reason == "" {
				t.Errorf("%q is kept because %q", symbol, reason)
			}
		}
	})
}

func FuzzReadSymbols(f *testing.F) {
	f.Add("ffffffff81000000 T _stext\nffffffff81000000 t a\nffffffff81000040 W b\nffffffff81000080 T _etext\nffffffff81000100 T __x_text_start\n")
	f.Add("0xffffffff81000000 T f\n                 U g\nffffffff81000000 t h [m]\nffffffff82000000 D d\nffffffffffffffff t last\n")
	f.Fuzz(func(t *testing.T, text string) {
		all, err := ReadSymbols(strings.NewReader(text))
		if err != nil {
			if !strings.HasPrefix(err.Error(), "symbols: ") {
				t.Errorf("%v does not say of what", err)
			}
			return
		}
		functionsInOrder(t, all)
		kept, err := ReadText(strings.NewReader(text))
		if err != nil {
			return
		}
		functionsInOrder(t, kept)
		for _, function := range kept {
			same := func(other Function) bool { return other.Begin == function.Begin && other.End == function.End }
			if isMark(function) || !slices.ContainsFunc(all, same) {
				t.Errorf("%+v is none of the functions", function)
			}
		}
	})
}

func functionsInOrder(t *testing.T, functions []Function) {
	t.Helper()
	end := uint64(kernelHalf)
	for _, function := range functions {
		if function.Begin < end || function.End <= function.Begin || function.Name == "" {
			t.Errorf("%+v begins before %#x, or is empty", function, end)
		}
		end = function.End
	}
}

// FuzzAliases takes a node's words for a device, too.
func FuzzAliases(f *testing.F) {
	f.Add("alias pci:v00008086d000010D3sv*sd*bc*sc*i* e1000e\nalias acpi*:PNP0501:* serial\nalias fs-ext4 ext4\n# x\n", "pci:v00008086d000010D3sv00000000sd00000000bc02sc00i00")
	f.Add("alias a:[a-z]*\\* m\nalias a:[ n\n", "a:b*")
	f.Fuzz(func(t *testing.T, text, modalias string) {
		aliases, err := ReadAliases(strings.NewReader(text))
		if err != nil {
			return
		}
		modules := aliases.Modules(modalias)
		if !slices.IsSorted(modules) || len(slices.Compact(slices.Clone(modules))) != len(modules) {
			t.Errorf("%q are not in order", modules)
		}
		for _, module := range modules {
			if module == "" || !strings.Contains(text, " "+module) && !strings.Contains(text, "\t"+module) && len(strings.Fields(text)) < 3 {
				t.Errorf("%q is no module of %q", module, text)
			}
		}
	})
}

// The report of a run is read again by those who compare it.
func FuzzCoverage(f *testing.F) {
	for one := NoCode; one <= Hot; one++ {
		f.Add(one.String())
	}
	f.Add("coverage 9")
	f.Fuzz(func(t *testing.T, text string) {
		var coverage Coverage
		if err := coverage.UnmarshalText([]byte(text)); err != nil {
			if !strings.Contains(err.Error(), fmt.Sprintf("%q", text)) {
				t.Errorf("%v does not name %q", err, text)
			}
			return
		}
		if back, err := coverage.MarshalText(); err != nil || !reflect.DeepEqual(string(back), text) {
			t.Errorf("%q came back as %q, %v", text, back, err)
		}
	})
}
