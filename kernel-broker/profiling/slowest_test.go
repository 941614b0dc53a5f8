// SPDX-License-Identifier: Apache-2.0

package profiling

import (
	"reflect"
	"testing"
	"time"
)

func TestNameSlowCalls(t *testing.T) {
	r := Result{
		IO: &IO{Files: []File{
			{Node: "n1", Path: "/data/a", WholePath: true, Device: "8:1", Inode: 5},
			{Node: "n1", Path: "b", Device: "8:1", Inode: 6},
			{Node: "n1", Path: "/data/old", WholePath: true, Device: "8:1", Inode: 7},
		}},
		Syscalls: &Syscalls{Slowest: []SlowCall{
			{Node: "n1", File: "a", Device: "8:1", Inode: 5},
			{Node: "n1", File: "../data/a", Device: "8:1", Inode: 5},
			{Node: "n1", File: "/link/a", Device: "8:1", Inode: 5},
			{Node: "n2", File: "a", Device: "8:1", Inode: 5},
			{Node: "n1", File: "a", Device: "8:2", Inode: 5},
			{Node: "n1", File: "b", Device: "8:1", Inode: 6},
			{Node: "n1", File: "new", Device: "8:1", Inode: 7},
			{Node: "n1", File: UnknownFile},
			{Node: "n1"},
		}},
	}
	r.NameSlowCalls()
	var got []string
	for _, c := range r.Syscalls.Slowest {
		got = append(got, c.File)
	}
	want := []string{"/data/a", "/data/a", "/link/a", "a", "a", "b", "new", UnknownFile, ""}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("files are %q, not %q", got, want)
	}
	alone := Result{Syscalls: r.Syscalls}
	alone.NameSlowCalls() // without io nothing is known
	if !reflect.DeepEqual(alone.Syscalls, r.Syscalls) {
		t.Error("names changed")
	}
}

// An estimate scales sums; a single call is as it was.
func TestSlowCallsDoNotScale(t *testing.T) {
	bytes := uint64(10)
	slow := SlowCall{
		Name: "read", Node: "n1", PID: 1, TID: 2, Program: "a", At: time.Unix(5, 0).UTC(), NS: 100, Bytes: &bytes, File: "a", Device: "8:1", Inode: 5,
		Split: map[Cause]Part{CauseFault: {Count: 2, NS: 100}},
	}
	s := &Syscalls{Calls: []Syscall{{Name: "read", Count: 1, NS: 100}}, Slowest: []SlowCall{slow}}
	if got := s.scaled(3); got.Calls[0].Count != 3 || !reflect.DeepEqual(got.Slowest, []SlowCall{slow}) {
		t.Errorf("%+v", got)
	}
}
