// SPDX-License-Identifier: Apache-2.0

package kconfig

import (
	"strings"
	"testing"
)

const goodFragment = `# What it is for.

# The reason.
CONFIG_A=y
# CONFIG_B is not set
CONFIG_C="text"
CONFIG_D=0x10

# Blanks at the end, and 64 bits.
# CONFIG_E is not set 	
CONFIG_F=0xdead000000000000
CONFIG_G=y  

# Another reason,
# in two lines.
CONFIG_AA=250
`

func TestParseFragment(t *testing.T) {
	fragment, err := ParseFragment("dir/good.config", []byte(strings.ReplaceAll(goodFragment, "F=0xdead000000000000", "F=0xdead000000000000\r")))
	if err != nil {
		t.Fatal(err)
	}
	if fragment.Name != "good" || len(fragment.Options) != 8 {
		t.Fatalf("got %+v", fragment)
	}
	last := fragment.Options[7]
	if last.Symbol != "AA" || last.Value != "250" || last.Where() != "dir/good.config:16" {
		t.Errorf("last option is %+v", last)
	}
	if off := fragment.Options[1]; off.Value != Off || off.String() != "# CONFIG_B is not set" {
		t.Errorf("option that is off is %+v, %s", off, off)
	}
}

func TestParseFragmentMalformed(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"no reason":       {"CONFIG_A=y\n", "f:1: CONFIG_A stands in a group without a comment"},
		"reason gone":     {"# r\nCONFIG_A=y\n\nCONFIG_B=y\n", "f:4: CONFIG_B stands in a group without"},
		"not sorted":      {"# r\nCONFIG_B=y\nCONFIG_A=y\n", "f:3: CONFIG_A stands after CONFIG_B"},
		"twice":           {"# r\nCONFIG_A=y\n\n# s\nCONFIG_A=y\n", "f:5: CONFIG_A is already set in line 2"},
		"comment inside":  {"# r\nCONFIG_A=y\n# s\nCONFIG_B=y\n", "f:3: comment in the middle"},
		"no value":        {"# r\nCONFIG_A\n", `f:2: "CONFIG_A" is neither`},
		"value n":         {"# r\nCONFIG_A=n\n", "f:2: CONFIG_A: value n"},
		"empty value":     {"# r\nCONFIG_A=\n", `f:2: CONFIG_A: value ""`},
		"open string":     {"# r\nCONFIG_A=\"x\n", "f:2: CONFIG_A: string"},
		"single quote":    {"# r\nCONFIG_A=\"\n", "f:2: CONFIG_A: string"},
		"prefix missing":  {"# r\nA=y\n", `f:2: "A=y" is neither`},
		"space":           {"# r\n CONFIG_A=y\n", "is neither"},
		"odd name":        {"# r\nCONFIG_A-B=y\n", `character '-' in the name`},
		"no name":         {"# r\nCONFIG_=y\n", "CONFIG_ without a name"},
		"odd name off":    {"# r\n# CONFIG_A B is not set\n", `character ' ' in the name`},
		"off in capitals": {"# r\n# CONFIG_A is not Set\nCONFIG_B=y\n", "f:2: \"# CONFIG_A is not Set\" is a comment for kconfig"},
		"off, two blanks": {"# r\n# CONFIG_A is not  set\nCONFIG_B=y\n", "f:2: "},
		"off, no blank":   {"# r\n#CONFIG_A is not set\nCONFIG_B=y\n", "f:2: "},
		"off, and a word": {"# r\n# CONFIG_A is not set here\nCONFIG_B=y\n", "f:2: "},
		"65 bits":         {"# r\nCONFIG_A=0x1dead000000000000\n", "is not y, m, a number"},
		"a binary number": {"# r\nCONFIG_A=0b11\n", "is not y, m, a number"},
		"digits parted":   {"# r\nCONFIG_A=1_000\n", "is not y, m, a number"},
		"empty":           {"", "f: no option in it"},
		"comments only":   {"# nothing\n", "f: no option in it"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseFragment("f", []byte(c.text))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q in it", err, c.want)
			}
		})
	}
}

func FuzzParseFragment(f *testing.F) {
	f.Add(goodFragment)
	f.Add("# r\nCONFIG_A=\"\"\n")
	f.Add("# CONFIG_ is not set\n")
	f.Add("# r\nCONFIG_A==\n\n\n#")
	f.Fuzz(func(t *testing.T, text string) {
		fragment, err := ParseFragment("f.config", []byte(text))
		if err != nil {
			return
		}
		merged, err := Merge([]Fragment{fragment})
		if err != nil {
			t.Fatalf("a fragment contradicts itself: %v", err)
		}
		config := ParseConfig(merged.Text())
		if len(config) != len(fragment.Options) {
			t.Fatalf("%d options became %d", len(fragment.Options), len(config))
		}
		for _, option := range fragment.Options {
			if config[option.Symbol] != option.Value {
				t.Fatalf("%s became %q", option, config[option.Symbol])
			}
		}
	})
}
