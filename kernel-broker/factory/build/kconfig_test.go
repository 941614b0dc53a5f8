// SPDX-License-Identifier: Apache-2.0

package build

import (
	"path/filepath"
	"testing"
)

// Some files indent the options of a choice; help texts stand further in.
func TestOptionsOfAChoiceAreDefined(t *testing.T) {
	tree := t.TempDir()
	write(t, filepath.Join(tree, "mm/Kconfig"), `choice
	prompt "Defaults"
	depends on HUGE

	config HUGE_ALWAYS
		bool "always"
	help
	  Words that name a
	  config NOTHING
	  and more.

	config HUGE_MADVISE
		bool "madvise"
		depends on MMU
endchoice
`)
	kconfig, err := ReadKconfig(tree)
	if err != nil {
		t.Fatal(err)
	}
	if !kconfig.Defines("HUGE_ALWAYS") || !kconfig.Defines("HUGE_MADVISE") || kconfig.Defines("NOTHING") {
		t.Errorf("%v", kconfig)
	}
	if unmet := kconfig.Unmet("HUGE_MADVISE", Config{}); len(unmet) != 1 {
		t.Errorf("unmet: %v", unmet)
	}
}
