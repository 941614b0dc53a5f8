// SPDX-License-Identifier: Apache-2.0

package pgo

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func words(values ...uint32) []byte {
	var data []byte
	for _, value := range values {
		data = binary.LittleEndian.AppendUint32(data, value)
	}
	return data
}

const gcc12 = 0x4232322a

func header(rest ...uint32) []byte {
	return words(append([]uint32{magic, gcc12, 77, 0}, rest...)...)
}

func TestRoundTrip(t *testing.T) {
	p := newProgram(t, cSource)
	data := p.run("50000")
	file, err := Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	if len(file.Functions) != 3 {
		t.Errorf("%d functions: one of four is inlined before it is counted", len(file.Functions))
	}
	if file.Max() < 49000 || !file.Ran() {
		t.Errorf("the largest counter is %d", file.Max())
	}
	again, err := Parse(file.Encode(3, file.Max()))
	if err != nil || !reflect.DeepEqual(file, again) {
		t.Errorf("written and read again: %v, %+v", err, again)
	}
	kernel, err := Parse(asKernel(t, data))
	if err != nil || !reflect.DeepEqual(file, kernel) {
		t.Errorf("as a kernel shows it: %v, %+v", err, kernel)
	}
}

func TestEncodeSummary(t *testing.T) {
	file := File{Version: gcc12, Functions: []Function{{Ident: 1, Lines: 2, Flow: 3, Counters: []Counter{{Values: []int64{5, 1 << 40}}}}}}
	want := words(magic, gcc12, 0, 0, tagSummary, 8, 2, math.MaxUint32,
		tagFunction, 12, 1, 2, 3, tagCounters, 16, 5, 0, 0, 1<<8, 0)
	if got := file.Encode(2, file.Max()); !bytes.Equal(got, want) {
		t.Errorf("got  % x\nwant % x", got, want)
	}
}

func TestParseBroken(t *testing.T) {
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"empty":              {nil, "0 bytes, the header alone has 16"},
		"half a header":      {header()[:12], "12 bytes"},
		"not whole words":    {append(header(), 1), "truncated"},
		"no magic":           {words(1, gcc12, 0, 0), "begins with 0x1"},
		"other byte order":   {words(0x61646367, gcc12, 0, 0), "begins with"},
		"gcc 10":             {words(magic, 0x4230312a, 0, 0), `another compiler, version "B01*"`},
		"gcc 13":             {words(magic, 0x4233312a, 0, 0), `another compiler, version "B31*"`},
		"unknown tag":        {header(0x02000000, 0), "unknown tag 0x2000000"},
		"tag without length": {header(tagFunction), "without a length"},
		"short function":     {header(tagFunction, 8, 1, 2), "has 8 bytes and not 12"},
		"function cut off":   {header(tagFunction, 12, 1), "12 bytes, 4 are left: truncated"},
		"lost counters":      {header(tagCounters, 8, 0, 0), "counters before any function"},
		"counters cut off":   {header(tagFunction, 12, 1, 2, 3, tagCounters, 16, 1, 0), "16 bytes, 8 are left: truncated"},
		"half a counter":     {header(tagFunction, 12, 1, 2, 3, tagCounters, 4, 1), "counters of 4 bytes"},
		"no counters":        {header(tagFunction, 12, 1, 2, 3, tagCounters, 0), "counters of 0 bytes"},
		"counters twice": {header(tagFunction, 12, 1, 2, 3, tagCounters, 8, 1, 0, tagCounters, 8, 1, 0),
			"counters of kind 0 twice"},
		"negative count": {header(tagFunction, 12, 1, 2, 3, tagCounters, 8, 0, 1<<31), "arc 0 ran -"},
		"endless zeros":  {header(tagFunction, 12, 1, 2, 3, tagCounters, 1<<31), "counters that are zero in one file"},
		"zeros of many":  {header(slices.Repeat([]uint32{tagFunction, 12, 1, 2, 3, tagCounters, 0xfff80000}, 3)...), "196608 counters that are zero in one file"},
		"odd summary":    {header(tagSummary, 12, 1, 2, 3), "has 12 bytes and not 8"},
		"after the end":  {header(0, 5), "4 bytes after the end"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse(c.data)
			if !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error is %v, want %q in it", err, c.want)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add(header())
	f.Add(header(tagSummary, 8, 1, 9, tagFunction, 12, 1, 2, 3, tagCounters, 16, 1, 0, 2, 0, tagFunction, 0, 0))
	f.Add(header(tagFunction, 12, 1, 2, 3, tagCounters, 0xffffffe8))
	f.Add(header(tagFunction, 12, 1, 2, 3, tagCounters+5*counterTagStep, 16, 1, 0, 2, 1<<31, 0))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := Parse(data)
		if err != nil {
			return
		}
		encoded := file.Encode(1, file.Max())
		again, err := Parse(encoded)
		if err != nil || !reflect.DeepEqual(file, again) {
			t.Errorf("%+v\nbecame %+v: %v", file, again, err)
		}
		if !bytes.Equal(encoded, again.Encode(1, again.Max())) {
			t.Error("written twice, the bytes differ")
		}
	})
}
