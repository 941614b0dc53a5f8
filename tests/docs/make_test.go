// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var target = regexp.MustCompile(`(?m)^([A-Za-z0-9_. -]+):(?:[^=]|$)`)

// targets of a Makefile.
func targets(t *testing.T, folder string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root(t), folder, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, m := range target.FindAllStringSubmatch(string(text), -1) {
		all = append(all, strings.Fields(m[1])...)
	}
	return all
}

// elsewhereMade are targets of other people's Makefiles: the kernel's.
var elsewhereMade = []string{"olddefconfig", "bzImage", "savedefconfig", "modules", "modules_install", "kernelrelease"}

// prose matches messages that merely begin like a make command.
var prose = regexp.MustCompile(`^room, `)

// Every target in the documentation is in the Makefile.
func TestMake(t *testing.T) {
	all := found(t, "make")
	if len(all) < 20 {
		t.Fatalf("only %d commands were found", len(all))
	}
	for _, c := range all {
		if prose.MatchString(strings.Join(c.words[1:], " ")) {
			continue
		}
		folder := ""
		for i := 1; i < len(c.words); i++ {
			switch w := c.words[i]; {
			case w == "-C" && i+1 < len(c.words):
				folder = c.words[i+1]
				i++
			case w == "-j" || w == "-k" || strings.Contains(w, "=") || w == "…" || w == "...":
			case strings.HasPrefix(w, "-"):
				t.Errorf("%s: option %s is not documented elsewhere", c, w)
			case strings.HasSuffix(w, "*") && slices.ContainsFunc(targets(t, folder), func(name string) bool { return strings.HasPrefix(name, strings.TrimSuffix(w, "*")) }):
			case !slices.Contains(targets(t, folder), w) && !slices.Contains(elsewhereMade, w):
				t.Errorf("%s: there is no target %s", c, w)
			}
		}
	}
}
