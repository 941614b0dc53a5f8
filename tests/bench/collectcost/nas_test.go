// SPDX-License-Identifier: Apache-2.0

package collectcost

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestNASPrograms(t *testing.T) {
	folder := t.TempDir()
	for _, name := range []string{"cg.S.x", "ep.A", "lu.W", "is.S"} {
		program(t, folder, name)
	}
	o := Options{NAS: folder, Only: []string{"nas-ep", "hpcc"}}
	if _, err := o.jobs(); !errors.Is(err, errNAS) || !strings.Contains(err.Error(), "make mg CLASS=S") {
		t.Errorf("without mg: %v", err)
	}
	program(t, folder, "mg.S")
	jobs, err := o.jobs()
	if err != nil || len(jobs) != 2 || jobs[0].Name != "nas-ep" || jobs[1].Name != "hpcc" {
		t.Fatalf("%+v, %v", jobs, err)
	}
	if want := filepath.Join(folder, "ep.A"); jobs[0].built != want {
		t.Errorf("the program is %q", jobs[0].built)
	}
	if err := o.gather(t.Context(), jobs[0], t.TempDir()); err != nil {
		t.Error(err)
	}
	program(t, folder, "mg.W")
	if _, err := o.jobs(); !errors.Is(err, errNAS) {
		t.Errorf("with two of mg: %v", err)
	}
}

func program(t *testing.T, folder, name string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(folder, name), nil, 0o755); err != nil {
		t.Fatal(err)
	}
}
