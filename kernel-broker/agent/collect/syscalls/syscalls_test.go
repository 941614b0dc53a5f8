// SPDX-License-Identifier: Apache-2.0

package syscalls

import (
	"reflect"
	"slices"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/addup"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
	"github.com/kernelbroker/kernelbroker/tests/support/bpftest"
)

func TestLayouts(t *testing.T) {
	bpftest.Check(t, wanted, map[string]bpftest.Layout{
		"calls":     {Value: callStats{}},
		"processes": {Key: processKey{}, Value: processCalls{}},
		"names":     {Value: processName{}},
		"losses":    {Value: losses{}},
		"cpus":      {Value: cpuState{}},
		"slowest":   {Value: slowCalls{}},
		"drafts":    {Value: slowCall{}},
	})
	if got := len(profiling.Causes()); got != parts {
		t.Errorf("%d causes, %d parts", got, parts)
	}
}

func TestName(t *testing.T) {
	for number, want := range map[uint32]string{
		0: "read", 1: "write", 257: "openat", 477: "call 477", numberFault: profiling.PageFault, numberForeign: profiling.ForeignCalls,
	} {
		if got := name(number); got != want {
			t.Errorf("%d: %q, want %q", number, got, want)
		}
	}
	for number := range names() {
		if number >= numberFault {
			t.Errorf("call %d has the place of something else", number)
		}
	}
}

func TestCall(t *testing.T) {
	var sum callStats
	one := callStats{Count: 2, Failed: 1, NS: 100, Most: 60}
	one.Times[5] = 2
	one.PartNS[0], one.PartNS[1], one.PartCount[1] = 70, 30, 4
	sum = addup.Plus(sum, one)
	one.Most = 50
	sum = addup.Plus(sum, one)
	call := sum.call("read")
	if call.Count != 4 || call.Failed != 2 || call.NS != 200 || call.MostNS != 60 || call.Times.Count() != 4 || len(call.Times) != 6 {
		t.Errorf("call is %+v", call)
	}
	want := map[profiling.Cause]profiling.Part{profiling.CauseCall: {NS: 140}, profiling.CauseFault: {Count: 8, NS: 60}}
	if len(call.Split) != 2 || call.Split[profiling.CauseCall] != want[profiling.CauseCall] ||
		call.Split[profiling.CauseFault] != want[profiling.CauseFault] {
		t.Errorf("split is %+v", call.Split)
	}
}

func TestSlowCall(t *testing.T) {
	slow := func(call, path string, kind uint32, result int64) profiling.SlowCall {
		c := slowCall{NS: 30, Result: result, PID: 7, TID: 8, Program: processName{'s', 'h'}, Type: kind}
		c.PartNS[0], c.PartNS[1], c.PartCount[1] = 20, 10, 2
		copy(c.Path[:], path)
		c.File.Device, c.File.Inode = 8<<20|17, 5
		return c.call(call)
	}
	for _, c := range []struct {
		call, path string
		kind       uint32
		result     int64
		file       string
	}{
		{"read", "a\xff", 8 + 1, 0, "a?"},
		{"read", "", 1 + 1, 1, "[pipe]"},
		{"recvfrom", "UDP", 12 + 1, 9, "[socket] UDP"},
		{"epoll_wait", "[eventpoll]", 0 + 1, 1, "[eventpoll]"},
		{"close", "", 0, 0, profiling.UnknownFile},
		{"openat", "data/a", 0, -2, "data/a"},
		{"getppid", "", 0, 1, ""},
		{profiling.PageFault, "", 0, 0, ""},
	} {
		got := slow(c.call, c.path, c.kind, c.result)
		moves := c.call == "read" || c.call == "recvfrom"
		if got.File != c.file || got.Failed != (c.result < 0) || (got.Bytes != nil) != moves || moves && *got.Bytes != uint64(c.result) {
			t.Errorf("%s of %q: %+v", c.call, c.path, got)
		}
		if known := got.Device == "8:17"; known != (c.kind > 0) {
			t.Errorf("%s of %q is on device %q", c.call, c.path, got.Device)
		}
	}
	got := slow("getrandom", "", 0, -11)
	want := map[profiling.Cause]profiling.Part{profiling.CauseCall: {NS: 20}, profiling.CauseFault: {Count: 2, NS: 10}}
	if !got.Failed || got.Bytes != nil || got.PID != 7 || got.TID != 8 || got.Program != "sh" || !reflect.DeepEqual(got.Split, want) {
		t.Errorf("%+v", got)
	}
}

// Each name in the lists is a call's, in one list only, and gets into the table.
func TestFileIn(t *testing.T) {
	known := map[string]uint8{}
	for number, name := range names() {
		known[name] = fileIn()[number]
	}
	seen := map[string]bool{}
	for want, list := range map[uint8][]string{fileNumber: byNumber, filePath: byPath, filePathAt: byPathAt, 0: closing} {
		for _, call := range list {
			got, is := known[call]
			if !is || got&^fileOpens != want || seen[call] {
				t.Errorf("%s: a call %v, twice %v, %d and not %d", call, is, seen[call], got, want)
			}
			seen[call] = true
		}
	}
	for _, call := range slices.Concat(opening, moving) {
		if _, is := known[call]; !is {
			t.Errorf("%s is no call", call)
		}
	}
	if known["open"] != filePath|fileOpens || known["openat"] != filePathAt|fileOpens || known["getppid"] != 0 {
		t.Errorf("open %d, openat %d, getppid %d", known["open"], known["openat"], known["getppid"])
	}
}

func TestProcessName(t *testing.T) {
	for want, name := range map[string]processName{
		"sh":               {'s', 'h'},
		"sixteen_letters_": {'s', 'i', 'x', 't', 'e', 'e', 'n', '_', 'l', 'e', 't', 't', 'e', 'r', 's', '_'},
		"a?":               {'a', 0xff},
	} {
		if got := name.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
