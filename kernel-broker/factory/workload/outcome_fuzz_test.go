// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/vm"
)

// FuzzOutcome is what a guest says of its run. It becomes part of reports: what
// is taken is the same after it was written as JSON, and every line of it counts.
func FuzzOutcome(f *testing.F) {
	f.Add("1 open 1000\n2 read-4k 5\n", "spectre_v2: Mitigation\n", "", 0)
	f.Add("64 x 1", "", "no such file\n", exitRun)
	f.Add("1 \x1b[2J 1\r\n", "\r\n\n", strings.Repeat("line\n", 50), 99)
	f.Fuzz(func(t *testing.T, regions, mitigations, output string, code int) {
		dir := t.TempDir()
		for name, text := range map[string]string{"regions": regions, "mitigations": mitigations, "output": output} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		w := Workload{Name: "some"}
		got, err := w.Outcome(vm.Result{ExitCode: code, Files: dir})
		if code != 0 {
			var failed *FailedError
			if !errors.As(err, &failed) || failed.Workload != "some" || failed.Part == "" {
				t.Fatalf("exit code %d: %v", code, err)
			}
			if lines := strings.Count(failed.Output, "\n") + 1; lines > 30 || !strings.Contains(strings.ReplaceAll(output, "\r", ""), strings.ReplaceAll(failed.Output, "\r", "")) {
				t.Errorf("%d lines of %q: %q", lines, output, failed.Output)
			}
			return
		}
		if err != nil {
			if !strings.Contains(err.Error(), "some") || !strings.Contains(err.Error(), "regions") {
				t.Errorf("%v does not say whose file is wrong", err)
			}
			return
		}
		again := ""
		for _, r := range got.Regions {
			if r.Marker < 1 || r.Marker > 63 || r.Operations < 1 || len(strings.Fields(r.Name)) != 1 {
				t.Errorf("taken: %+v", r)
			}
			again += fmt.Sprintf("%d %s %d\n", r.Marker, r.Name, r.Operations)
		}
		if back, err := parseRegions(again); err != nil || !reflect.DeepEqual(back, got.Regions) {
			t.Errorf("%+v came back as %+v, %v", got.Regions, back, err)
		}
		if lines := len(got.Mitigations); lines > strings.Count(mitigations, "\n")+1 {
			t.Errorf("%d lines of %q", lines, mitigations)
		}
		text, err := json.Marshal(got.Regions)
		var back []Region
		if err != nil || json.Unmarshal(text, &back) != nil || !reflect.DeepEqual(back, got.Regions) {
			t.Errorf("%s of %+v: %v", text, got.Regions, err)
		}
	})
}

// What apt prints names a folder of the cache.
func FuzzIdentity(f *testing.F) {
	f.Add("'http://x/hpcc_1.5.0-3_amd64.deb' hpcc_1.5.0-3_amd64.deb 92820 SHA256:ab\n", "hpcc")
	f.Add("W: x\n'' a_ 1 2\n", "a")
	f.Fuzz(func(t *testing.T, said, name string) {
		key, err := identity(said, name)
		if err != nil {
			return
		}
		digest, ok := strings.CutPrefix(key, name+"-")
		if !ok || len(digest) != 16 || strings.Trim(digest, "0123456789abcdef") != "" {
			t.Errorf("%q is %q", name, key)
		}
		if !strings.Contains(said, name+"_") {
			t.Errorf("%q is not in %q", name, said)
		}
	})
}

func TestOutcomeOfAGuestThatSaysTooMuch(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w := Workload{Name: "some"}
	write("regions", "1 a 5\n")
	write("mitigations", strings.Repeat("x\n", vm.MostText))
	if _, err := w.Outcome(vm.Result{Files: dir}); err == nil || !strings.Contains(err.Error(), "mitigations") {
		t.Errorf("error is %v", err)
	}
	write("output", strings.Repeat("x\n", vm.MostText)+"the end\n")
	var failed *FailedError
	if _, err := w.Outcome(vm.Result{Files: dir, ExitCode: exitRun}); !errors.As(err, &failed) || !strings.HasSuffix(failed.Output, "x\nthe end") {
		t.Errorf("error is %v", err)
	}
	write("regions", "1 a\x1b[2J 5\n")
	if _, err := w.Outcome(vm.Result{Files: dir}); err == nil || !strings.Contains(err.Error(), "is no name") {
		t.Errorf("error is %v", err)
	}
}
