// SPDX-License-Identifier: Apache-2.0

package build

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/kconfig"
)

func dkmsFolder(t *testing.T, conf string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "dkms.conf"), []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// What packages of Debian write in their dkms.conf.
func TestReadDKMS(t *testing.T) {
	for name, c := range map[string]struct {
		conf string
		want dkms
	}{
		"two modules": {`PACKAGE_NAME="both"
PACKAGE_VERSION="1.2"
MAKE[0]="make -C ${kernel_source_dir} M=${dkms_tree} EXTRA=$kernelver"
BUILT_MODULE_NAME[0]="one"
BUILT_MODULE_LOCATION[0]="src/"
DEST_MODULE_LOCATION[0]="/kernel/extra"
BUILT_MODULE_NAME[1]="two"
AUTOINSTALL="yes"
`, dkms{Name: "both", Version: "1.2", Make: "make -C /obj M=DIR EXTRA=6.1.0-x", Modules: []string{"src/one", "two"}}},
		"a command for this kernel, a patch for it, and one for another": {`PACKAGE_NAME=fits
PACKAGE_VERSION=3
PRE_BUILD="configure.sh $kernelver"
MAKE[0]="make old"
MAKE[1]="make new"
MAKE_MATCH[1]="^6[.]1[.]"
PATCH[0]="for-6.1.patch"
PATCH_MATCH[0]="^6[.]1"
PATCH[1]="for-5.patch"
PATCH_MATCH[1]="^5"
`, dkms{Name: "fits", Version: "3", Before: "configure.sh 6.1.0-x", Make: "make new", Patches: []string{"for-6.1.patch"}, Modules: []string{"fits"}}},
		"for such kernels only": {"PACKAGE_NAME=a\nPACKAGE_VERSION=1\nBUILD_EXCLUSIVE_KERNEL='^6'\nBUILD_EXCLUSIVE_ARCH=x86_64\nBUILD_EXCLUSIVE_CONFIG='CONFIG_PCI !CONFIG_USB'\nBUILD_EXCLUSIVE_KERNEL_MIN=3.9\nBUILD_EXCLUSIVE_KERNEL_MAX=6.1.99\n",
			dkms{Name: "a", Version: "1", Modules: []string{"a"}}},
	} {
		dir := dkmsFolder(t, c.conf)
		got, err := readDKMS(t.Context(), dir, dir, "6.1.0-x", "/obj", kconfig.Config{"PCI": "y"})
		c.want.Make = strings.ReplaceAll(c.want.Make, "DIR", dir)
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestReadDKMSRefuses(t *testing.T) {
	const named = "PACKAGE_NAME=a\nPACKAGE_VERSION=1\n"
	for words, conf := range map[string]string{
		"no PACKAGE_NAME":                   "PACKAGE_VERSION=1\n",
		"it is not for kernel 6.1.0-x":      named + "BUILD_EXCLUSIVE_KERNEL='^5'\n",
		"KERNEL_MIN=6.10: it is not":        named + "BUILD_EXCLUSIVE_KERNEL_MIN=6.10\n",
		"KERNEL_MAX=6.0.9: it is not":       named + "BUILD_EXCLUSIVE_KERNEL_MAX=6.0.9\n",
		"it is not for x86_64":              named + "BUILD_EXCLUSIVE_ARCH=aarch64\n",
		"BUILD_EXCLUSIVE_CONFIG=CONFIG_USB": named + "BUILD_EXCLUSIVE_CONFIG=CONFIG_USB\n",
		"BUILD_DEPENDS=spl":                 named + "BUILD_DEPENDS[0]=spl\n",
		"is not below the source":           named + "BUILT_MODULE_NAME[0]=x\nBUILT_MODULE_LOCATION[0]=../../\n",
		"exit status 1":                     "exit 1\n",
	} {
		if _, err := readDKMS(t.Context(), dkmsFolder(t, conf), "/tree", "6.1.0-x", "/obj", kconfig.Config{"PCI": "y"}); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v", words, err)
		}
	}
	if _, err := readDKMS(t.Context(), t.TempDir(), "/tree", "6.1.0-x", "/obj", nil); err == nil {
		t.Error("no dkms.conf, no error")
	}
	if _, err := readDKMS(t.Context(), filepath.Join(t.TempDir(), "none"), "/tree", "6.1.0-x", "/obj", nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no folder: %v", err)
	}
}
