// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// ours are the programs besides kernelctl, by folder. Their help must name the commands and flags.
var ours = map[string]string{
	"kernel-factory":      "./kernel-broker/cmd/kernel-factory",
	"kernel-broker-agent": "./kernel-broker/cmd/kernel-broker-agent",
	"kblab":               "./tests/lab/cmd/kblab",
	"kernel-broker":       "./kernel-broker/cmd/kernel-broker",
}

// Every command of our other programs is one that they have, with flags that they
// have.
func TestOurPrograms(t *testing.T) {
	for program, folder := range ours {
		t.Run(program, func(t *testing.T) {
			binary := filepath.Join(t.TempDir(), program)
			build := exec.Command("go", "build", "-o", binary, folder)
			build.Dir = root(t)
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			helps := map[string]string{}
			for _, c := range found(t, program) {
				verbs, flags := verbsOf(c.words[1:], nested[program])
				key := strings.Join(verbs, " ")
				if _, known := helps[key]; !known {
					out, err := exec.Command(binary, append(verbs, "--help")...).CombinedOutput()
					if err != nil {
						t.Errorf("%s: %v: %s", c, err, out)
					}
					helps[key] = string(out)
				}
				if len(verbs) > 0 && !strings.Contains(helps[key], program+" "+key) {
					t.Errorf("%s: %s has no command %q", c, program, key)
				}
				for _, flag := range flags {
					if !strings.Contains(helps[key]+" --help", " "+flag+" ") && !strings.Contains(helps[key], " "+flag+",") && !strings.Contains(helps[key], " "+flag+"\n") {
						t.Errorf("%s: %q has no flag %s", c, program+" "+key, flag)
					}
				}
			}
		})
	}
}

// nested are the commands that have commands of their own.
var nested = map[string][]string{"kernel-broker": {"store"}}

// verbsOf returns the possible command and the names of all flags up to "--", which starts another program's command.
func verbsOf(words, nested []string) (verbs, flags []string) {
	for _, w := range words {
		if w == "--" {
			return verbs, flags
		}
		if name, _, is := option(w); is {
			flags = append(flags, name)
		} else if len(flags) == 0 && (len(verbs) == 0 || len(verbs) == 1 && slices.Contains(nested, verbs[0])) &&
			strings.ToLower(w) == w && !strings.ContainsAny(w, "./=@…<>:") {
			verbs = append(verbs, w)
		}
	}
	return verbs, flags
}
