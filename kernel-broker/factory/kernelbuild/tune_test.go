// SPDX-License-Identifier: Apache-2.0

package kernelbuild

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// With several CPUs no proposal could win.
func TestTuneRefusesSeveralCPUs(t *testing.T) {
	var r TuneRequest
	r.Options.Catalog, r.Options.Cache, r.Options.Name = t.TempDir(), t.TempDir(), "two"
	for file, from := range map[string]string{
		"kernels/two.yaml":             "kernels/bench-syscalls.yaml",
		"workloads/postmark.yaml":      "workloads/postmark.yaml",
		"workloads/postmark-2cpu.yaml": "workloads/postmark-2cpu.yaml",
	} {
		text, err := os.ReadFile(filepath.Join("../../../catalog", from))
		if err != nil {
			t.Fatal(err)
		}
		text = []byte(strings.NewReplacer("name: bench-syscalls", "name: two", "workload: syscall-mix", "workload: postmark-2cpu").Replace(string(text)))
		path := filepath.Join(r.Options.Catalog, file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, text, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	r.Say = t.Logf
	r.Site = filepath.Join(t.TempDir(), "factory.yaml")
	if err := os.WriteFile(r.Site, []byte("mitigations: any\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Tune(t.Context(), r); !errors.Is(err, kb.ErrFailedPrecondition) || !strings.Contains(err.Error(), "cpus: 1") {
		t.Error(err)
	}
}

func TestProposalsThatAreAskedFor(t *testing.T) {
	var r TuneRequest
	r.Options.Catalog = "../../../catalog"
	all, groups, err := r.proposals()
	if err != nil || len(all) < 2 || len(groups) != len(all) {
		t.Fatalf("%d proposals, %v", len(all), err)
	}
	r.Only = []string{all[1].Fragment, all[0].Fragment, all[1].Fragment}
	some, groups, err := r.proposals()
	if err != nil || len(some) != 2 || len(groups) != len(all) || some[0] != all[1] || some[1] != all[0] {
		t.Errorf("each once, in the order asked for: %+v, %v", some, err)
	}
	r.Only = []string{"none"}
	if _, _, err := r.proposals(); !errors.Is(err, kb.ErrNotFound) {
		t.Errorf("one that there is not: %v", err)
	}
	// A fragment that cannot be read ends no search after hours.
	r.Only, r.Options.Catalog = nil, t.TempDir()
	text := "proposals: [{fragment: ghost, title: There is none}]\n"
	if err := os.WriteFile(filepath.Join(r.Options.Catalog, "proposals.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.proposals(); err == nil || !strings.Contains(err.Error(), `proposal "ghost"`) {
		t.Errorf("one without its fragment: %v", err)
	}
}
