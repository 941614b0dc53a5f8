// SPDX-License-Identifier: Apache-2.0

package authcost

import (
	"strings"
	"testing"
)

const printed = `goos: linux
goarch: amd64
pkg: example.org/rpc
BenchmarkAuthorisation/call=read/way=off-2         	   27178	     44510 ns/op	        32.00 median-us/op
BenchmarkAuthorisation/call=read/way=munge-2       	    3277	    367666 ns/op	       354.0 median-us/op
PASS
`

func TestParse(t *testing.T) {
	samples, err := Parse(strings.NewReader(printed))
	if err != nil {
		t.Fatal(err)
	}
	want := Sample{Call: "read", Way: "munge", Calls: 3277, Microseconds: 354}
	if len(samples) != 2 || samples[1] != want || samples[0].Way != "off" {
		t.Errorf("%+v", samples)
	}
	for name, text := range map[string]string{
		"nothing":          "PASS\n",
		"another unit":     "BenchmarkAuthorisation/call=read/way=off-2 1 5 ns/op\n",
		"another name":     "BenchmarkAuthorisation/read-2 1 5 median-us/op\n",
		"no figure at all": "BenchmarkAuthorisation/call=read/way=off-2 x y\n",
	} {
		if samples, err := Parse(strings.NewReader(text)); err == nil {
			t.Errorf("%s: %+v", name, samples)
		}
	}
}

func TestJudge(t *testing.T) {
	samples := []Sample{
		{Call: "read", Way: "off", Microseconds: 30}, {Call: "read", Way: "munge", Microseconds: 300}, {Call: "change", Way: "munge", Microseconds: 2500},
		{Call: "read", Way: "off", Microseconds: 40}, {Call: "read", Way: "munge", Microseconds: 200}, {Call: "change", Way: "off", Microseconds: 100},
		{Call: "read", Way: "off", Microseconds: 90}, {Call: "read", Way: "munge", Microseconds: 900},
	}
	r, err := Judge(samples)
	if err != nil || len(r.Costs) != 2 {
		t.Fatal(r, err)
	}
	if c := r.Costs[0]; c.Off != (Figure{40, 30, 90}) || c.On != (Figure{300, 200, 900}) || c.Added != 260 || !c.Met {
		t.Errorf("%+v", c)
	}
	if c := r.Costs[1]; c.Call != "change" || c.Added != 2400 || c.Met {
		t.Errorf("%+v", c)
	}
	var table strings.Builder
	if err := r.Print(&table); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"40 (30-90)", "300 (200-900)", "260", "not met"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("no %q in\n%s", want, table.String())
		}
	}
	if r, err := Judge(samples[2:3]); err == nil {
		t.Errorf("nothing to compare with, and no error: %+v", r)
	}
}
