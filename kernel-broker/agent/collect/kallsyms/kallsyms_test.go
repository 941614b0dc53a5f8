// SPDX-License-Identifier: Apache-2.0

package kallsyms

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

const list = `0000000000000000 A fixed_percpu_data
ffffffff81000000 T _stext
ffffffff81000000 T startup_64
ffffffff81000100 t do_one
ffffffff81000200 W weak_one
ffffffff81000300 D data
ffffffffc0000000 t helper	[ext4]
`

func TestSymbolNames(t *testing.T) {
	table, err := Read(strings.NewReader(list))
	if err != nil {
		t.Fatal(err)
	}
	for address, want := range map[uint64]string{
		0xffffffff80ffffff: "0xffffffff80ffffff",
		0xffffffff81000000: "_stext",
		0xffffffff810000ff: "_stext",
		0xffffffff81000100: "do_one",
		0xffffffff810003ff: "weak_one",
		0xffffffffffffffff: "helper",
	} {
		if got := table.Name(address); got != want {
			t.Errorf("%#x: %q, want %q", address, got, want)
		}
	}
}

func TestSymbolsRefused(t *testing.T) {
	for text, want := range map[string]error{
		"0000000000000000 T _stext\n": errHidden,
		"":                            errHidden,
		"zz T x\n":                    errLine,
		"1 T\n":                       errLine,
		"1 TT x\n":                    errLine,
		"1 T x [m] y\n":               errLine,
	} {
		if _, err := Read(strings.NewReader(text)); !errors.Is(err, want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestAddresses(t *testing.T) {
	table, err := Read(strings.NewReader(list + "ffffffff81000400 t twice\nffffffff81000500 t twice\nffffffff81000600 t both\nffffffff81000700 t both\n"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := table.Addresses(strings.NewReader("do_one\nhelper [ext4]\nhelper [xfs]\ntwice\nboth\nboth\nabsent\nstartup_64\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := []uintptr{0xffffffff81000000, 0xffffffff81000100, 0xffffffff81000600, 0xffffffff81000700, 0xffffffffc0000000}
	if !slices.Equal(got, want) {
		t.Errorf("%#x, want %#x", got, want)
	}
}

func FuzzSymbols(f *testing.F) {
	f.Add(list, uint64(0xffffffff81000001))
	f.Add("1 t a\n1 t b\n0 t c\n", uint64(1))
	f.Fuzz(func(t *testing.T, text string, address uint64) {
		table, err := Read(strings.NewReader(text))
		if err != nil {
			return
		}
		if table.Name(address) == "" {
			t.Errorf("%#x has no name in %q", address, text)
		}
	})
}
