// SPDX-License-Identifier: Apache-2.0

package kconfig

import (
	"strings"
	"testing"
)

func mustFragment(t *testing.T, name, text string) Fragment {
	t.Helper()
	fragment, err := ParseFragment(name, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return fragment
}

func TestMergeOverBase(t *testing.T) {
	merged, err := Merge([]Fragment{
		mustFragment(t, "a", "# r\nCONFIG_LZ4=y\nCONFIG_SAME=y\n"),
		mustFragment(t, "b", "# r\n# CONFIG_OFF is not set\nCONFIG_SAME=y\n"),
	})
	if err != nil {
		t.Fatal(err)
	}
	got := merged.Over(Config{"XZ": "y", "OFF": "y", "KEPT": "y"})
	want := "CONFIG_KEPT=y\nCONFIG_XZ=y\nCONFIG_LZ4=y\n# CONFIG_OFF is not set\nCONFIG_SAME=y\n"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestMergeNamesBothLinesOfEveryConflict(t *testing.T) {
	_, err := Merge([]Fragment{
		mustFragment(t, "a", "# r\nCONFIG_A=y\nCONFIG_B=1\n"),
		mustFragment(t, "b", "# r\n\n# s\n# CONFIG_A is not set\nCONFIG_B=2\n"),
	})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"b:4: # CONFIG_A is not set contradicts a:2: CONFIG_A=y",
		"b:5: CONFIG_B=2 contradicts a:3: CONFIG_B=1",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in:\n%v", want, err)
		}
	}
}

func TestSurvival(t *testing.T) {
	asked, err := Merge([]Fragment{mustFragment(t, "f", `# r
CONFIG_ABSENT=y
CONFIG_KEPT=y
CONFIG_NUMBER=5
# CONFIG_OFF is not set
# CONFIG_STAYS_ON is not set
CONFIG_UNKNOWN=y
`)})
	if err != nil {
		t.Fatal(err)
	}
	definitions, err := Read(tree(map[string]string{
		"Kconfig":          "source \"lib/Kconfig\"\nsource \"arch/$(SRCARCH)/Kconfig\"\n",
		"arch/x86/Kconfig": "config X86\n\tdef_bool y\n", "arch/arm/Kconfig": "config ABSENT\n\tbool\n",
		"lib/Kconfig": `
if NET

config ABSENT
	bool "an option"
	depends on CRYPTO && \
		CRYPTO_SHA256
	depends on KEPT || NOTHING
	help
	  depends on HELP is only words here

endif

config NUMBER
	int
config STAYS_ON
	bool
`}))
	if err != nil {
		t.Fatal(err)
	}
	got := ParseConfig("CONFIG_KEPT=y\nCONFIG_NUMBER=7\nCONFIG_STAYS_ON=y\n# CONFIG_NET is not set\nCONFIG_CRYPTO=y\n")
	err = CheckSurvival(asked, got, definitions)
	want := `4 of the options asked for did not survive olddefconfig:
  f:2: CONFIG_ABSENT=y: absent
      unmet: depends on NET (lib/Kconfig:2)
      unmet: depends on CRYPTO && CRYPTO_SHA256 (lib/Kconfig:6)
  f:4: CONFIG_NUMBER=5: is now CONFIG_NUMBER=7
  f:6: # CONFIG_STAYS_ON is not set: is now CONFIG_STAYS_ON=y
  f:7: CONFIG_UNKNOWN=y: no Kconfig file of this source defines it`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
	got["ABSENT"], got["NUMBER"], got["UNKNOWN"] = "y", "5", "y"
	delete(got, "STAYS_ON")
	if err := CheckSurvival(asked, got, definitions); err != nil {
		t.Errorf("all survived, and yet: %v", err)
	}
}
