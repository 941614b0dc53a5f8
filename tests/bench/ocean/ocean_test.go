// SPDX-License-Identifier: Apache-2.0

package ocean

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// leave writes what a job leaves in its user's home.
func leave(t *testing.T, home, job string, files map[string]string) {
	t.Helper()
	for kind, text := range files {
		if err := os.WriteFile(filepath.Join(home, job+"."+kind), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func files(theta string) map[string]string {
	return map[string]string{
		"release": "6.1.0-mitgcm\n", "times": "61.250 58.700 1.850\n", "fields": "0a1b  ./T.0000000020.data\n",
		"output": "(PID.TID 0000.0001) %MON time_tsnumber = 20\n(PID.TID 0000.0001) // not the monitor\n(PID.TID 0000.0001) %MON dynstat_theta_max = " + theta + "\n",
	}
}

func TestOutcome(t *testing.T) {
	home := t.TempDir()
	leave(t, home, "one", files("2.9701E+01"))
	leave(t, home, "same", files("2.9701E+01"))
	leave(t, home, "other", files("2.9702E+01"))
	one, err := outcome(home, "one")
	if err != nil || one.Release != "6.1.0-mitgcm" || one.Elapsed != 61.25 || one.System != 1.85 || one.Monitor != 2 || one.Fields != 1 {
		t.Fatalf("%+v, %v", one, err)
	}
	same, err := outcome(home, "same")
	if where := one.differs(same); where != "" || err != nil {
		t.Errorf("equal results differ: %s, %v", where, err)
	}
	other, err := outcome(home, "other")
	if where := one.differs(other); !strings.Contains(where, "line 2") || err != nil {
		t.Errorf("a last digit that differs: %q, %v", where, err)
	}
	for name, change := range map[string]func(map[string]string){
		"no field":   func(f map[string]string) { f["fields"] = "" },
		"no monitor": func(f map[string]string) { f["output"] = "STOP ABNORMAL END\n" },
		"no time":    func(f map[string]string) { f["times"] = "bash: no such file\n" },
	} {
		f := files("1")
		change(f)
		leave(t, home, "broken", f)
		if got, err := outcome(home, "broken"); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if _, err := outcome(home, "absent"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a job that left nothing: %v", err)
	}
}

// TestOneKernel: two jobs on one kernel compare nothing.
func TestOneKernel(t *testing.T) {
	stock, own := Outcome{Release: "6.1.0-stock"}, Outcome{Release: "6.1.0-mitgcm"}
	if err := (Options{}).judge(&Result{Identical: true, Outcomes: []Outcome{stock, stock}}); err == nil {
		t.Error("both jobs ran on stock, and nobody says so")
	}
	if err := (Options{}).judge(&Result{Outcomes: []Outcome{stock, own}}); !errors.Is(err, ErrDiffers) {
		t.Errorf("other results: %v", err)
	}
	if err := (Options{}).judge(&Result{Identical: true, Outcomes: []Outcome{stock, own}}); err != nil {
		t.Error(err)
	}
}

func TestCheckout(t *testing.T) {
	for name, want := range map[string]string{"../x": "not the name of a folder", "nothing": "name a checkout of MITgcm"} {
		if err := (Model{Source: t.TempDir(), Experiment: name}).check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
