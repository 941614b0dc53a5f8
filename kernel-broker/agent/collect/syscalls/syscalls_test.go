// SPDX-License-Identifier: Apache-2.0

package syscalls

import (
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
