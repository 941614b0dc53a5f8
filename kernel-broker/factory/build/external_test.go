// SPDX-License-Identifier: Apache-2.0

package build

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/kconfig"
)

// object compiles a file that has what a module says of itself.
func object(t *testing.T, path string, information ...string) {
	t.Helper()
	source := "int kb;\n"
	for i, text := range information {
		source += `__attribute__((used, section(".modinfo"))) static const char information` + string(rune('a'+i)) + `[] = "` + text + `";` + "\n"
	}
	cmd := exec.CommandContext(t.Context(), "cc", "-x", "c", "-c", "-g", "-o", path, "-")
	cmd.Stdin = strings.NewReader(source)
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
}

// What was made is taken only if it is a module of exactly this kernel, whatever the build's end was.
func TestTakeModule(t *testing.T) {
	for name, c := range map[string]struct {
		information []string
		want        string
	}{
		"a module":             {[]string{"name=kb", "vermagic=6.1.0-x SMP mod_unload "}, ""},
		"of the running one":   {[]string{"name=kb", "vermagic=6.1.0-running SMP mod_unload "}, `kb.ko was built for kernel "6.1.0-running", not "6.1.0-x"`},
		"of a longer release":  {[]string{"name=kb", "vermagic=6.1.0-x2 SMP mod_unload "}, `kb.ko was built for kernel "6.1.0-x2", not "6.1.0-x"`},
		"no module":            {nil, "kb.ko: it is no kernel module"},
		"without its release":  {[]string{"name=kb"}, "kb.ko: it has no name or no vermagic"},
		"without its own name": {[]string{"vermagic=6.1.0-x SMP "}, "kb.ko: it has no name or no vermagic"},
	} {
		dir, to := t.TempDir(), filepath.Join(t.TempDir(), "updates")
		object(t, filepath.Join(dir, "kb.ko"), c.information...)
		got, err := packageBuild{release: "6.1.0-x"}.take(t.Context(), filepath.Join(dir, "kb.ko"), to, kconfig.Config{})
		_, missing := os.Stat(filepath.Join(to, "kb.ko"))
		if c.want == "" {
			if err != nil || got != "kb" || missing != nil {
				t.Errorf("%s: %q, %v, %v", name, got, err, missing)
			}
			continue
		}
		if err == nil || err.Error() != c.want || !errors.Is(missing, fs.ErrNotExist) {
			t.Errorf("%s: %v, %v", name, err, missing)
		}
	}
	if _, err := (packageBuild{release: "6.1.0-x"}).take(t.Context(), filepath.Join(t.TempDir(), "kb.ko"), t.TempDir(), kconfig.Config{}); err == nil ||
		err.Error() != "the build ended well and made no kb.ko" {
		t.Errorf("no module: %v", err)
	}
}
