// SPDX-License-Identifier: Apache-2.0

package slim

import (
	"bytes"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"unicode"
)

// FuzzJobTrace: what a job used of its kernel is what nodes say. It may only let
// more stay, and no word of it is repeated that this kernel does not know.
func FuzzJobTrace(f *testing.F) {
	f.Add([]byte(`{"run":7,"results":[{"node":"n1","digest":"sha256:ab"}],"releases":["6.1"],"calls":["read","[32-bit call]","x\n"],"functions":["vfs_read","shared","gone","\u001b[2J"],"file_systems":["ext4"]}`))
	f.Add([]byte(`{"run":1}{"run":2}`))
	f.Add([]byte(`{"run":1,"functions":["","vfs_read","vfs_read"],"calls":[""]}`))
	const table = "0\tcommon\tread\tsys_read\n5 64 fstat sys_newfstat # x\n512 x32 read compat\n"
	pieces := []Piece{
		{Object: "fs/read.o", Section: ".text", Begin: kernelHalf, Size: 32}, {Object: "fs/other.o", Section: ".text", Begin: kernelHalf + 32, Size: 32},
		{Object: notThere, Section: ".text", Begin: kernelHalf + 64, Size: 32},
	}
	const symbols = "ffff800000000000 T vfs_read\nffff800000000010 t shared.part.0\nffff800000000020 t shared\nffff800000000024 T __x64_sys_newfstat\nffff800000000040 T __x64_sys_read\n"
	calls, err := ReadCalls(strings.NewReader(table))
	if err != nil {
		f.Fatal(err)
	}
	names, err := ReadNames(strings.NewReader(symbols), pieces)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		trace, err := readJobTrace(bytes.NewReader(text))
		if err != nil {
			return
		}
		path := filepath.Join(t.TempDir(), "trace.json")
		if err := trace.Write(path); err != nil {
			t.Fatal(err)
		}
		if back, err := ReadJobTraces([]string{path}); err != nil || len(back) != 1 || !reflect.DeepEqual(back[0], trace) {
			t.Errorf("%+v came back as %+v, %v", trace, back, err)
		}
		before, after := Measure(pieces, nil, nil), Measure(pieces, nil, nil)
		witnesses := after.AddRuns([]JobTrace{trace}, names, calls)
		Keep{}.KeepFileSystems([]JobTrace{trace}, witnesses, &Kbuild{}, treeConfig)
		for object, use := range after {
			if use.Coverage < before[object].Coverage {
				t.Errorf("%s was %v, and is %v", object, before[object].Coverage, use.Coverage)
			}
			if strings.ContainsFunc(use.Seen, unicode.IsControl) {
				t.Errorf("%s stays for %q", object, use.Seen)
			}
		}
		for _, w := range witnesses {
			if w.Found+len(w.Refused) > w.Named || w.Named != len(trace.Calls)+len(trace.Functions) {
				t.Errorf("%+v of %+v", w, trace)
			}
			if line := w.String(); strings.ContainsFunc(line, unicode.IsControl) {
				t.Errorf("%q is no line", line)
			}
		}
	})
}

func FuzzReadCalls(f *testing.F) {
	f.Add("0\tcommon\tread\tsys_read\n5 64 fstat sys_newfstat # x\n512 x32 read compat\n")
	f.Add("# only\n1 64 x\n")
	f.Fuzz(func(t *testing.T, text string) {
		calls, err := ReadCalls(strings.NewReader(text))
		if err != nil {
			if !strings.HasPrefix(err.Error(), "system calls: ") {
				t.Errorf("%v does not say of what", err)
			}
			return
		}
		for call, function := range calls {
			entries := calls.entries(call)
			if call == foreignCalls || len(strings.Fields(call)) != 1 || function == "" {
				continue
			}
			if len(entries) != 3 || !strings.Contains(text, function) {
				t.Errorf("%q enters by %q", call, entries)
			}
		}
	})
}
