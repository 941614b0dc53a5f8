// SPDX-License-Identifier: Apache-2.0

package kconfig

import (
	"strings"
	"testing"
	"testing/fstest"
)

func tree(files map[string]string) fstest.MapFS {
	all := fstest.MapFS{}
	for name, text := range files {
		all[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return all
}

// Some files indent the options of a choice; help texts stand further in.
func TestOptionsOfAChoiceAreDefined(t *testing.T) {
	read, err := Read(tree(map[string]string{"Kconfig": "source \"mm/Kconfig\"\n", "mm/Kconfig": `choice
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
`}))
	if err != nil {
		t.Fatal(err)
	}
	if !read.Defines("HUGE_ALWAYS") || !read.Defines("HUGE_M*") || read.Defines("NOTHING") || read.Defines("NO*") {
		t.Errorf("%v", read.Symbols)
	}
	got := strings.Join(read.Unmet("HUGE_MADVISE", Config{"HUGE": "y"}), "; ")
	if want := "depends on MMU (mm/Kconfig:14)"; got != want {
		t.Errorf("unmet: %s, want %s", got, want)
	}
}

// FuzzRead: the conditions of a symbol say where they stand, a symbol that is
// not met has no more of them than its definition, and no prediction adds or
// loses a symbol.
func FuzzRead(f *testing.F) {
	f.Add("if NET\nconfig A\n\tbool\n\tdepends on B && \\\n\t\t!C\n\thelp\n\t  depends on D\nendif\n\tconfig E\n")
	f.Add("endif\nif\nmenuconfig\n\tdepends on X\nconfig A\n\tdepends on ((\n")
	f.Add("if ((((\nendif\nendif\nconfig\nconfig A\n\tdefault \\\n")
	f.Add("source \"Kconfig\"\n")
	f.Add("menu \"a\"\ndepends on X\nconfig B\n\tbool \"b\" if C\n\tselect D if E\nendmenu\nconfig D\n\tdef_bool y\n")
	f.Fuzz(func(t *testing.T, text string) {
		read, err := Read(tree(map[string]string{"Kconfig": text}))
		if err != nil {
			return
		}
		config := Config{}
		for symbol := range read.Symbols {
			config[symbol] = "y"
		}
		for name, symbol := range read.Symbols {
			unmet := read.Unmet(name, config)
			for _, one := range unmet {
				if !strings.Contains(one, "(Kconfig:") {
					t.Errorf("%q does not say where", one)
				}
			}
			for _, d := range symbol.definitions {
				if len(d.conditions) < len(unmet) {
					t.Errorf("%s: %d conditions, %d are not met", name, len(d.conditions), len(unmet))
				}
			}
		}
		for symbol := range read.Symbols {
			if after := read.Without(config, []string{symbol}, nil); len(after) != len(config) {
				t.Fatal("a configuration changed its symbols")
			}
			break
		}
	})
}
