// SPDX-License-Identifier: Apache-2.0

package slim

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestReadTrace(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		want Spans
		fail string
	}{
		"joined, sorted, and only the kernel's": {
			text: "ffffffff81000010 ffffffff81000020\n0xffffffff81000000 0xffffffff81000010\n401000 401010\n\nffffffff81000100 ffffffff81000104\nffffffff81000018 ffffffff8100001c\n",
			want: Spans{{0xffffffff81000000, 0xffffffff81000020}, {0xffffffff81000100, 0xffffffff81000104}},
		},
		"empty":             {text: ""},
		"one word":          {text: "ffffffff81000010\n", fail: `line 1: "ffffffff81000010" is not "begin end"`},
		"not hex":           {text: "ffffffff81000010 ffffffff81000020\nx y\n", fail: "line 2"},
		"ends before begin": {text: "ffffffff81000010 ffffffff81000010\n", fail: "before it begins"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ReadTrace(strings.NewReader(test.text))
			if test.fail != "" {
				if err == nil || !strings.Contains(err.Error(), test.fail) {
					t.Fatalf("error %v, want %q", err, test.fail)
				}
				return
			}
			if err != nil || !slices.Equal(got, test.want) {
				t.Fatalf("got %v, %v; want %v", got, err, test.want)
			}
		})
	}
}

// TestSpansCountEachByteOnce compares spans with a plain set of bytes.
func TestSpansCountEachByteOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const memory = 64
		var ran [memory]bool
		var spans Spans
		for range rapid.IntRange(0, 8).Draw(t, "blocks") {
			begin := rapid.IntRange(0, memory-2).Draw(t, "begin")
			end := rapid.IntRange(begin+1, memory-1).Draw(t, "end")
			spans = append(spans, Span{uint64(begin), uint64(end)})
			for i := begin; i < end; i++ {
				ran[i] = true
			}
		}
		joined := join(slices.Clone(spans))
		begin := rapid.IntRange(0, memory-1).Draw(t, "from")
		end := rapid.IntRange(begin, memory-1).Draw(t, "to")
		var want uint64
		for i := begin; i < end; i++ {
			if ran[i] {
				want++
			}
		}
		if got := joined.In(uint64(begin), uint64(end)); got != want {
			t.Fatalf("%v: %d bytes of [%d,%d) ran, want %d", joined, got, begin, end, want)
		}
	})
}

func FuzzReadTrace(f *testing.F) {
	f.Add("ffffffff81000010 ffffffff81000020\n")
	f.Add("0xffffffffffffffff 0xffffffffffffffff")
	f.Fuzz(func(t *testing.T, text string) {
		spans, err := ReadTrace(strings.NewReader(text))
		if err != nil {
			return
		}
		for i, span := range spans {
			if span.End <= span.Begin || i > 0 && span.Begin <= spans[i-1].End {
				t.Fatalf("spans %v touch or are empty", spans)
			}
		}
	})
}

// Who finds the file takes it as it is, so a kill must not leave half of it.
func TestJobTraceIsReplacedWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trace.json")
	before := path + ".before"
	if err := errors.Join(os.WriteFile(path, []byte("old"), 0o644), os.Link(path, before)); err != nil {
		t.Fatal(err)
	}
	if err := (JobTrace{Run: 12}).Write(path); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(before); err != nil || string(text) != "old" {
		t.Errorf("the old file was written to: %q, %v", text, err)
	}
	if all, err := ReadJobTraces([]string{path}); err != nil || len(all) != 1 {
		t.Errorf("%+v, %v", all, err)
	}
}
