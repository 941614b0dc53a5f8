// SPDX-License-Identifier: Apache-2.0

package build

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// thatLooks are packages whose makefile looks where dkms has the kernel's objects: of the kernel that it is told, and of the one that runs.
var thatLooks = map[string]struct{ conf, makefile string }{
	"the kernel that it is told": {"MAKE[0]=\"make KVERSION=$kernelver\"\n",
		"KVERSION ?= $(shell uname -r)\nall:\n\t$(MAKE) -C /lib/modules/$(KVERSION)/build M=$(CURDIR) modules\n"},
	"the running one": {"MAKE[0]=\"make\"\n",
		"all:\n\t$(MAKE) -C /lib/modules/$(shell uname -r)/build M=$(CURDIR) modules\n"},
	"its source": {"MAKE[0]=\"make all\"\n",
		"all:\n\ttest -e /lib/modules/$(KERNELRELEASE)/source/Kbuild\n\t$(MAKE) -C /lib/modules/$(KERNELRELEASE)/build M=$(CURDIR) modules\n"},
	"where it is told": {"", ""}, // make goes there by itself
}

// looking is the build of such a package against a folder of objects whose makefile makes a module as kbuild does.
func looking(t *testing.T, conf, makefile string) packageBuild {
	t.Helper()
	folder, obj, tree := t.TempDir(), t.TempDir(), t.TempDir()
	for path, text := range map[string]string{
		filepath.Join(folder, "dkms.conf"): "PACKAGE_NAME=hello\nPACKAGE_VERSION=1\n" + conf,
		filepath.Join(folder, "Makefile"):  makefile,
		filepath.Join(folder, "hello.c"):   `__attribute__((used, section(".modinfo"))) static const char of[] = "name=hello\0vermagic=6.1.0-x SMP ";` + "\n",
		filepath.Join(obj, ".config"):      "CONFIG_MODULES=y\n",
		filepath.Join(obj, "Makefile"):     "modules:\n\tcc -c -o $(M)/hello.ko $(M)/hello.c\n",
		filepath.Join(tree, "Kbuild"):      "",
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return packageBuild{builder: &Builder{}, at: site{obj: obj, tree: tree, plan: Plan{Compiler: Compiler{Name: "cc"}}},
		source: moduleSource{ModulePackage: ModulePackage{Folder: folder}}, release: "6.1.0-x", log: io.Discard, tree: filepath.Join(t.TempDir(), "package")}
}

func TestPackagesThatLookInLibModules(t *testing.T) {
	before, _ := os.ReadDir("/lib/modules")
	for name, c := range thatLooks {
		to := filepath.Join(t.TempDir(), "updates")
		built, err := looking(t, c.conf, c.makefile).run(t.Context(), to)
		if _, missing := os.Stat(filepath.Join(to, "hello.ko")); err != nil || missing != nil || !slices.Equal(built.Modules, []string{"hello"}) {
			t.Errorf("%s: %+v, %v, %v", name, built, err, missing)
		}
	}
	if after, _ := os.ReadDir("/lib/modules"); len(after) != len(before) {
		t.Errorf("the machine's own /lib/modules has %d entries, and had %d", len(after), len(before))
	}
}

// Where no namespace is to be had, other packages build, and these say why they do not.
func TestWithoutNamespaces(t *testing.T) {
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "unshare"), []byte("#!/bin/sh\necho unshare: unshare failed: Operation not permitted >&2\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	told := thatLooks["where it is told"]
	if _, err := looking(t, told.conf, told.makefile).run(t.Context(), t.TempDir()); err != nil {
		t.Errorf("a package that does not look there: %v", err)
	}
	c := thatLooks["the kernel that it is told"]
	_, err := looking(t, c.conf, c.makefile).run(t.Context(), t.TempDir())
	var failed *BuildError
	if !errors.As(err, &failed) {
		t.Fatal(err)
	}
	for _, words := range []string{"looks for the kernel in /lib/modules/", "Operation not permitted", "user.max_user_namespaces"} {
		if !strings.Contains(failed.Err.Error(), words) {
			t.Errorf("%q is not in %v", words, failed.Err)
		}
	}
	c.makefile = "all:\n\tfalse\n"
	if _, err := looking(t, c.conf, c.makefile).run(t.Context(), t.TempDir()); err == nil || strings.Contains(err.Error(), "namespaces") {
		t.Errorf("another fault: %v", err)
	}
}
