// SPDX-License-Identifier: Apache-2.0

//go:build lab

package factory

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/graph"
)

// modular is a recipe with modules of the folder and of no Debian package: these
// are for the cluster's suite.
const modular = `name: modular
description: A kernel with modules of others
source:
  debian: linux-source-6.1
base: tinyconfig
fragments:
  - tiny
  - scripts
  - modules
  - proc
localversion: -modular
compiler: gcc-12
modules:
  - folder: %s
`

// The list of the modules that are loaded.
const procFragment = "# Which modules are loaded.\nCONFIG_PROC_FS=y\n"

// second uses a symbol of first, so that the order matters.
const (
	first = `#include <linux/module.h>
int kb_answer(void);
int kb_answer(void) { return 42; }
EXPORT_SYMBOL_GPL(kb_answer);
MODULE_LICENSE("GPL");
`
	second = `#include <linux/module.h>
int kb_answer(void);
static int __init begin(void) { return kb_answer() == %d ? 0 : -EINVAL; }
module_init(begin);
MODULE_LICENSE("GPL");
`
	dkmsConf = `PACKAGE_NAME=kb-test
PACKAGE_VERSION=1
%sBUILT_MODULE_NAME[0]=second
BUILT_MODULE_NAME[1]=first
`
)

// moduleSource is a folder as packages for dkms have one, and the recipe with it.
type moduleSource struct{ dir, catalog string }

func newModuleSource(t *testing.T) moduleSource {
	t.Helper()
	s := moduleSource{dir: t.TempDir()}
	modulesFragment, err := os.ReadFile(filepath.Join(top, "catalog/fragments/modules.config"))
	if err != nil {
		t.Fatal(err)
	}
	s.catalog = catalogWith(t, map[string]string{
		"kernels/modular.yaml":     fmt.Sprintf(modular, s.dir),
		"fragments/modules.config": string(modulesFragment),
		"fragments/proc.config":    procFragment,
	})
	s.write(t, "first.c", first)
	s.write(t, "second.c", fmt.Sprintf(second, 42))
	s.write(t, "Makefile", "obj-m := first.o second.o\n")
	s.write(t, "dkms.conf", fmt.Sprintf(dkmsConf, ""))
	return s
}

func (s moduleSource) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// fails builds, which has to end at the step with the words.
func (s moduleSource) fails(t *testing.T, p place, step string, words ...string) {
	t.Helper()
	ended := p.kernelctl("kernel", "build", "modular", "--catalog", s.catalog, "--publish", "never")
	if ended.exit != 1 {
		t.Errorf("exit %d:\n%s", ended.exit, ended.err)
	}
	for _, word := range words {
		if !strings.Contains(ended.err, word) {
			t.Errorf("%q is not in\n%s", word, ended.err)
		}
	}
	if got := p.step("modular", step).State; got != graph.Failed {
		t.Errorf("step %s is %s", step, got)
	}
}

// Modules of others are built against exactly the kernel, signed by its build, and
// loaded, each after those that it needs, before the kernel is anybody's.
func TestModulesOfOthers(t *testing.T) {
	p := anew(t, "modules")
	s := newModuleSource(t)
	p.must("kernel", "build", "modular", "--catalog", s.catalog, "--publish", "never")
	if got := string(p.file("modular", "modules", "modules")); got != "second\nfirst\n" {
		t.Errorf("loaded: %q", got) // the newest first
	}
	manifest, err := build.ReadManifest(p.step("modular", "plain").Dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(manifest.ModulePackages); !strings.HasPrefix(got, "[{kb-test sha256:") || !strings.HasSuffix(got, " [second first]}]") {
		t.Errorf("the manifest has the packages %s", got)
	}
	if manifest.ModuleArchive == nil || manifest.ModuleArchive.Size == 0 {
		t.Errorf("the manifest has no archive: %+v", manifest)
	}

	t.Run("one that does not load", func(t *testing.T) {
		s.write(t, "second.c", fmt.Sprintf(second, 43))
		s.fails(t, p, "modules", "modules second do not load")
	})
	t.Run("a build that ends well and makes nothing", func(t *testing.T) {
		s.write(t, "dkms.conf", fmt.Sprintf(dkmsConf, "MAKE[0]=true\n"))
		s.fails(t, p, "plain", s.dir, "the build ended well and made no second.ko")
	})
	t.Run("a source that does not compile", func(t *testing.T) {
		s.write(t, "dkms.conf", fmt.Sprintf(dkmsConf, ""))
		s.write(t, "second.c", "#error kb: not for this kernel\n")
		s.fails(t, p, "plain", s.dir, "kb: not for this kernel")
	})
	t.Run("a symbol that nothing has", func(t *testing.T) {
		s.write(t, "second.c", strings.ReplaceAll(fmt.Sprintf(second, 42), "kb_answer", "kb_question"))
		s.fails(t, p, "plain", s.dir, "kb_question")
	})
	t.Run("not for this kernel", func(t *testing.T) {
		s.write(t, "dkms.conf", fmt.Sprintf(dkmsConf, "BUILD_EXCLUSIVE_KERNEL='^5[.]'\n"))
		s.fails(t, p, "plain", s.dir, "BUILD_EXCLUSIVE_KERNEL=^5[.]: it is not for kernel 6.1.")
	})
}
