// SPDX-License-Identifier: Apache-2.0

//go:build lab

package factory

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/graph"
)

// catalogWith is the suite's catalog with some files of its own.
func catalogWith(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(catalog)); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// recipe is tiny's with another fragment besides its own.
func recipe(t *testing.T, name, fragment string) string {
	text := string(read(t, catalog+"/kernels/tiny.yaml"))
	text = strings.Replace(text, "name: tiny", "name: "+name, 1)
	return strings.Replace(text, "  - scripts\n", "  - scripts\n  - "+fragment+"\n", 1)
}

// What a person mistyped is found when the catalog is read, and the answer
// names the file and the line.
func TestMistakesInTheCatalog(t *testing.T) {
	p := open(t, "whole")
	for name, c := range map[string]struct {
		fragment, recipe, workload string
		want                       string
	}{
		"no reason":        {fragment: "CONFIG_EPOLL=y\n", want: "fragments/wrong.config:1: CONFIG_EPOLL stands in a group without a comment"},
		"not sorted":       {fragment: "# Why.\nCONFIG_EPOLL=y\nCONFIG_AIO=y\n", want: "fragments/wrong.config:3: CONFIG_AIO stands after CONFIG_EPOLL"},
		"set to n":         {fragment: "# Why.\nCONFIG_EPOLL=n\n", want: "fragments/wrong.config:2: CONFIG_EPOLL: value n"},
		"no option at all": {fragment: "# Why.\nEPOLL=y\n", want: `fragments/wrong.config:2: "EPOLL=y" is neither`},
		"twice":            {fragment: "# Why.\nCONFIG_EPOLL=y\n\n# Why.\nCONFIG_EPOLL=y\n", want: "fragments/wrong.config:5: CONFIG_EPOLL is already set in line 2"},
		"contradiction":    {fragment: "# Why.\n# CONFIG_TTY is not set\n", want: "fragments/wrong.config:2: # CONFIG_TTY is not set"},
		"key of a recipe":  {recipe: "flavour: sweet\n", want: `kernels/wrong.yaml: line 17: unknown key "flavour"`},
		"value":            {recipe: "keep: [CONFIG_TTY]\n", want: `kernels/wrong.yaml: line 17: key "keep"`},
		"workload":         {workload: "train: {seed: 1}\n", want: "workloads/writes.yaml: line 1:"},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{"kernels/wrong.yaml": recipe(t, "wrong", "wrong") + c.recipe, "fragments/wrong.config": c.fragment}
			if c.fragment == "" {
				files["fragments/wrong.config"] = "# Why.\nCONFIG_EPOLL=y\n"
			}
			if c.workload != "" {
				files["workloads/writes.yaml"] = c.workload
			}
			s := place{t, p.dir}.kernelctl("kernel", "build", "wrong", "--catalog", catalogWith(t, files), "--publish", "never")
			if s.exit != 1 || !strings.Contains(s.err, c.want) {
				t.Errorf("exit %d, %q is not in\n%s", s.exit, c.want, s.err)
			}
		})
	}
}

// Only the source knows its options: this is found when the kernel is
// configured, and before a file of it is compiled.
func TestUnknownOption(t *testing.T) {
	p := open(t, "whole")
	files := map[string]string{
		"kernels/unknown.yaml":     recipe(t, "unknown", "unknown"),
		"fragments/unknown.config": "# Spelt wrongly.\n\n# As here.\nCONFIG_SERIAL_8520=y\n",
	}
	s := p.kernelctl("kernel", "build", "unknown", "--catalog", catalogWith(t, files), "--publish", "never")
	for _, words := range []string{"fragments/unknown.config:4: CONFIG_SERIAL_8520=y", "no Kconfig file of this source defines it"} {
		if s.exit != 1 || !strings.Contains(s.err, words) {
			t.Errorf("exit %d, %q is not in\n%s", s.exit, words, s.err)
		}
	}
	status := p.status("unknown")
	for _, step := range status.Steps {
		if strings.HasSuffix(step.Name, "config") || step.Name == "source" {
			continue
		}
		if step.State != graph.Pending && step.Name != "stock" && step.Name != "measure-stock-test" {
			t.Errorf("step %s is %s", step.Name, step.State)
		}
	}
}
