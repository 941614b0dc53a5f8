// SPDX-License-Identifier: Apache-2.0

package slim

import (
	"reflect"
	"strings"
	"testing"
)

// smallMap is what GNU ld wrote for two objects that each have a function f.
const smallMap = `Archive member included to satisfy reference by file (symbol)

a/b/x.o                       (--whole-archive)

Memory Configuration

Name             Origin             Length             Attributes
*default*        0x0000000000000000 0xffffffffffffffff

Linker script and memory map

                0xffffffff81000000                . = 0xffffffff81000000

.text           0xffffffff81000000       0x30
 *(.text)
 .text          0xffffffff81000000        0xd a/b/x.o
                0xffffffff81000004                g
 *fill*         0xffffffff8100000d        0x3 cc
 .text          0xffffffff81000010        0xd lib/lib.a(y.o)
                0xffffffff81000011                h
 .text          0xffffffff81000020        0x0 a/empty.o
 .text.some_very_long_section_name
                0xffffffff81000020        0x6 a/b/x.o
                0xffffffff81000020                lng
LOAD vmlinux.a
OUTPUT(out elf64-x86-64)

.init.text      0xffffffff82000000       0x10
 .init.text     0xffffffff82000000       0x10 ./a/y.o

.init.data      0xffffffff82001000       0x8
 .init.data     0xffffffff82001000        0x8 a/b/x.o
                                         0x10 (size before relaxing)

.data..percpu   0x0000000000000000       0x20
 .data..percpu  0x0000000000000000       0x20 a/b/x.o

.comment        0x0000000000000000       0x27
 .comment       0x0000000000000000       0x27 a/b/x.o
`

func TestReadLinkMap(t *testing.T) {
	got, err := ReadLinkMap(strings.NewReader(smallMap))
	if err != nil {
		t.Fatal(err)
	}
	want := []Piece{
		{"a/b/x.o", ".text", 0xffffffff81000000, 0xd},
		{"lib/y.o", ".text", 0xffffffff81000010, 0xd},
		{"a/b/x.o", ".text", 0xffffffff81000020, 0x6},
		{"a/y.o", ".init.text", 0xffffffff82000000, 0x10},
		{"a/b/x.o", ".init.data", 0xffffffff82001000, 0x8},
		{"a/b/x.o", ".data..percpu", 0, 0x20},
		{"a/b/x.o", ".comment", 0, 0x27},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
	if _, err := ReadLinkMap(strings.NewReader("no map at all\n")); err == nil {
		t.Error("a file that is no map was read as one")
	}
}

func TestMeasure(t *testing.T) {
	pieces, err := ReadLinkMap(strings.NewReader(smallMap))
	if err != nil {
		t.Fatal(err)
	}
	run := Spans{{0xffffffff81000004, 0xffffffff81000008}, {0xffffffff82000000, 0xffffffff82000004}}
	for name, test := range map[string]struct {
		work Spans
		want map[string]Coverage
	}{
		"the workload's part unknown": {nil, map[string]Coverage{"a/b/x.o": Hot, "lib/y.o": Cold, "a/y.o": Started}},
		"ran outside of the workload": {Spans{}, map[string]Coverage{"a/b/x.o": Warm, "lib/y.o": Cold, "a/y.o": Started}},
		"ran for the workload": {
			Spans{{0xffffffff81000004, 0xffffffff81000005}},
			map[string]Coverage{"a/b/x.o": Hot, "lib/y.o": Cold, "a/y.o": Started},
		},
	} {
		t.Run(name, func(t *testing.T) {
			uses := Measure(pieces, run, test.work)
			for object, want := range test.want {
				if got := uses[object].Coverage; got != want {
					t.Errorf("%s is %s, want %s", object, got, want)
				}
			}
			if x := uses["a/b/x.o"]; x.Text != 0x13 || x.Data != 0x28 || x.Ran != 4 {
				t.Errorf("sizes of a/b/x.o: %+v", x)
			}
		})
	}
}

func TestFunctionsOfOneNameAreToldApart(t *testing.T) {
	pieces, err := ReadLinkMap(strings.NewReader(smallMap))
	if err != nil {
		t.Fatal(err)
	}
	functions, err := ReadSymbols(strings.NewReader(`0000000000000010 A some_constant
ffffffff81000004 T g
ffffffff81000000 t f
ffffffff81000010 t f
ffffffff81000011 T h
ffffffff81000020 T lng
ffffffff81000020 T also_lng
ffffffff82001000 d data
ffffffffc0000000 t in_a_module	[module]
ffffffff82000000 T _etext
`))
	if err != nil {
		t.Fatal(err)
	}
	got := objectsOf(functions, pieces)
	want := map[string]string{"g": "a/b/x.o", "h": "lib/y.o", "lng": "a/b/x.o"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// The linker script aligns parts of the code to large pages, and its marks stand
// where functions begin and end.
func TestReadText(t *testing.T) {
	const symbols = `ffffffff81000000 T _text
ffffffff81000000 T _stext
ffffffff81000000 T startup_64
ffffffff81000040 T __noinstr_text_start
ffffffff81000040 t first
ffffffff81000060 T __noinstr_text_end
ffffffff81200000 T __entry_text_start
ffffffff81200000 T entry
ffffffff81200040 t get_text_end_of
ffffffff81200050 T __static_call_text_end
ffffffff81200050 T _etext
ffffffff81800000 T _sinittext
ffffffff81800010 t started
`
	want := []Function{
		{"startup_64", 0xffffffff81000000, 0xffffffff81000040}, {"first", 0xffffffff81000040, 0xffffffff81000060},
		{"entry", 0xffffffff81200000, 0xffffffff81200040}, {"get_text_end_of", 0xffffffff81200040, 0xffffffff81200050},
	}
	if got, err := ReadText(strings.NewReader(symbols)); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got  %x, %v\nwant %x", got, err, want)
	}
	if _, err := ReadText(strings.NewReader("ffffffff81000000 T f\n")); err == nil {
		t.Error("code without an end")
	}
}

func TestCoverageAsText(t *testing.T) {
	for h := NoCode; h <= Hot; h++ {
		text, err := h.MarshalText()
		var back Coverage
		if err != nil || back.UnmarshalText(text) != nil || back != h {
			t.Errorf("%s became %s", h, back)
		}
	}
	if new(Coverage).UnmarshalText([]byte("lukewarm")) == nil {
		t.Error("lukewarm is a coverage")
	}
}

func FuzzReadLinkMap(f *testing.F) {
	f.Add(smallMap)
	f.Add(mapTitle + "\n.text 0x0 0x10\n .text\n 0xffffffffffffffff 0x1 a.o\n")
	f.Fuzz(func(t *testing.T, text string) {
		pieces, err := ReadLinkMap(strings.NewReader(text))
		if err == nil && len(pieces) == 0 {
			t.Fatal("no piece and no error")
		}
		for _, piece := range pieces {
			if piece.Size == 0 || piece.Begin+piece.Size < piece.Begin || piece.Object == "" || piece.Section == "" {
				t.Fatalf("piece %+v", piece)
			}
		}
	})
}
