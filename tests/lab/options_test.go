// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOptionsDefaults(t *testing.T) {
	o, err := Options{Repo: "/somewhere"}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	if o.Nodes != 2 || o.Memory != 512 || o.CPUs != 1 || o.Kernel != "stock" ||
		o.Dir != "/somewhere/build/lab/default" || o.Product != "/somewhere/build" {
		t.Errorf("defaults %+v", o)
	}
}

func TestOptionsRefused(t *testing.T) {
	for want, o := range map[string]Options{
		"nodes":       {Nodes: 65},
		"memory":      {Memory: 64},
		"cpus":        {CPUs: -1},
		"accelerator": {Accel: "xen"},
		"lab folder":  {Dir: "/tmp/a b"},
		"/run":        {Dir: "/run/lab"},
		"26.05":       {Slurm: SlurmOptions{Version: "20.11"}},
	} {
		o.Repo = "/somewhere"
		if _, err := o.withDefaults(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("options %+v: error %v, want one about %s", o, err, want)
		}
	}
}

func TestForeignFolderIsRefused(t *testing.T) {
	dir := t.TempDir()
	precious := filepath.Join(dir, "precious")
	if err := os.WriteFile(precious, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := (layout{dir}).make(1); err == nil {
		t.Error("a folder with other files was taken")
	}
	if _, err := os.Stat(precious); err != nil {
		t.Errorf("the other file: %v", err)
	}
	own := layout{filepath.Join(dir, "own")}
	for range 2 {
		if err := own.make(1); err != nil {
			t.Errorf("own folder: %v", err)
		}
	}
}
