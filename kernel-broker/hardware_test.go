// SPDX-License-Identifier: Apache-2.0

package kernelbroker

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestPlainText(t *testing.T) {
	for text, want := range map[string]string{
		"Dell Inc. PowerEdge R640":  "Dell-Inc.-PowerEdge-R640",
		"  HPE  ProLiant (Gen10)  ": "HPE-ProLiant-Gen10",
		"1.2\n; rm -rf /":           "1.2-rm-rf",
		"-x":                        "x",
		"../..":                     "",
		"Caf\u00e9":                 "Caf",
		"":                          "",
		strings.Repeat("a", 64):     strings.Repeat("a", 64),
		strings.Repeat("a", 500):    strings.Repeat("a", 55) + "~69206a47",
	} {
		if got := PlainText(text); got != want || (Hardware{Board: got}).Validate() != nil {
			t.Errorf("PlainText(%q) = %q", text, got)
		}
	}
	if long := strings.Repeat("a", 500); PlainText(long+"1") == PlainText(long+"2") {
		t.Error("two boards have one name")
	}
	if err := (Hardware{NIC: "a b"}).Validate(); !errors.Is(err, ErrInvalid) {
		t.Errorf("a blank: %v", err)
	}
}

// A row stays small however many boots it counts.
func TestLedgerRowIsBounded(t *testing.T) {
	at := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	try := Try{Kernel: Ref{"mitgcm", 3}, Way: WayReturn, At: at, Cause: strings.Repeat("x", 5000)}
	row := try.Row()
	for i := range 100 {
		try.Node = fmt.Sprint("n", i)
		row.Add(try)
	}
	if row.Tries != 100 || row.Successes != 0 || row.Streak != 100 || len(row.Failed) != maxFailedNodes || len(row.LastFailure.Cause) != maxTryCause {
		t.Errorf("row %+v", row)
	}
	before := row.Clone()
	try.OK, try.Times = true, BootTimes{Load: time.Second, Stop: time.Millisecond, Shutdown: -1, Start: 0}
	for range 100 {
		row.Add(try)
	}
	if row.Streak != 0 || row.Failed != nil || row.LastFailure.Node != "n99" || len(row.Samples) != maxSamples {
		t.Errorf("row %+v", row)
	}
	if got := row.Times()[0]; got != try.Times || got.Total() >= 0 {
		t.Errorf("times %+v", got)
	}
	if before.Tries != 100 || len(before.Failed) != maxFailedNodes {
		t.Errorf("the copy changed: %+v", before)
	}
	other := try
	other.Hardware.Firmware = "2"
	if other.Row().ID() == row.ID() {
		t.Error("another firmware has the same row")
	}
}

func TestHardwareRuleValidate(t *testing.T) {
	good := HardwareRule{Name: "r640", Board: "Dell*", Kexec: KexecNever, By: WayReboot}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*HardwareRule){
		"no name":           func(r *HardwareRule) { r.Name = "" },
		"a bad name":        func(r *HardwareRule) { r.Name = "a b" },
		"for nothing":       func(r *HardwareRule) { r.Board = "" },
		"a bad pattern":     func(r *HardwareRule) { r.NIC = "a b" },
		"a bad node":        func(r *HardwareRule) { r.Node = "n[1-4]" },
		"a bad kernel":      func(r *HardwareRule) { r.Kernel = "mitgcm@x" },
		"stock":             func(r *HardwareRule) { r.Kernel = "stock" },
		"no kexec":          func(r *HardwareRule) { r.Kexec = "" },
		"a return by kexec": func(r *HardwareRule) { r.By = WayReturn },
		"once for a board":  func(r *HardwareRule) { r.Once, r.Kexec = true, KexecNoReturn },
		"never, once":       func(r *HardwareRule) { r.Once, r.Node = true, "n1" },
		"a long reason":     func(r *HardwareRule) { r.Reason = strings.Repeat("x", 300) },
	} {
		r := good
		change(&r)
		if err := r.Validate(); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
