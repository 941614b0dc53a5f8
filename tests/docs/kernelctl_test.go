// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kernelbroker/kernelbroker/kernel-broker/cli"
)

// inHelp are the examples and commands in kernelctl's own help, the source of the manual pages.
func inHelp() (all []command) {
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		where := c.CommandPath() + " --help"
		for line := range strings.Lines(c.Example) {
			all = append(all, commands(where, strings.TrimSpace(line), false)...)
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(cli.Command())
	return all
}

// placeholder is a word that the reader replaces.
var placeholder = regexp.MustCompile(`^[A-Z][A-Z0-9_]*$`)

// unfinished reports whether the reader must fill in something.
func unfinished(words []string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return w == "…" || w == "..." })
}

// parse parses the words with kernelctl's own command tree, up to running the command. For a mere name the command must
// exist.
func parse(c command) error {
	words, named := c.words[1:], c.name
	err := take(words, named)
	if err != nil && unfinished(words) {
		named, words = true, slices.DeleteFunc(slices.Clone(words), func(w string) bool { return w == "…" || w == "..." })
		err = take(words, named)
	}
	if err != nil && c.sentence && (strings.Contains(err.Error(), "flag needs an argument") || strings.Contains(err.Error(), "received 0")) {
		// Its arguments are beside it.
		for range 2 {
			words = append(slices.Clone(words), "1")
			if err = take(words, named); err == nil {
				break
			}
		}
	}
	if err != nil && strings.Contains(err.Error(), "invalid argument") {
		// A number may be given as a word.
		words = slices.Clone(words)
		for i, w := range words {
			if placeholder.MatchString(w) {
				words[i] = "1"
			}
		}
		err = take(words, named)
	}
	return err
}

func take(words []string, named bool) error {
	root := cli.Command()
	root.InitDefaultHelpFlag()
	root.InitDefaultVersionFlag()
	c, rest, err := root.Find(words)
	if err != nil {
		return err
	}
	c.InitDefaultHelpFlag()
	if err := c.ParseFlags(rest); err != nil {
		return err
	}
	if help, err := c.Flags().GetBool("help"); err == nil && help {
		return nil
	}
	if c == root {
		if c.Flags().Changed("version") || named && c.Flags().NArg() == 0 {
			return nil
		}
		return fmt.Errorf("kernelctl has no command %q", c.Flags().Args())
	}
	if named {
		if c.HasSubCommands() && c.Flags().NArg() > 0 && !c.Runnable() {
			return fmt.Errorf("%s has no command %q", c.CommandPath(), c.Flags().Arg(0))
		}
		if c.HasSubCommands() && c.Flags().NArg() == 0 {
			return nil // a noun
		}
		if c.Flags().NArg() == 0 {
			return nil // a verb
		}
	}
	if err := c.ValidateArgs(c.Flags().Args()); err != nil {
		return err
	}
	if err := c.ValidateRequiredFlags(); err != nil {
		return err
	}
	return c.ValidateFlagGroups()
}

// Every command of kernelctl's that people read of parses.
func TestKernelctl(t *testing.T) {
	all := found(t, "kernelctl")
	if len(all) < 60 {
		t.Fatalf("only %d commands were found", len(all))
	}
	for _, c := range all {
		if err := parse(c); err != nil {
			t.Errorf("%s: %v", c, err)
		}
	}
}

// Commands that would fail for a reader fail here.
func TestKernelctlCheckFindsErrors(t *testing.T) {
	for line, words := range map[string]string{
		"kernelctl profile promote mitgcm@4":                 `required flag(s) "reason"`,
		"kernelctl profile advance mitgcm@4":                 "advance",
		"kernelctl job show":                                 "accepts 1 arg",
		"kernelctl job show 1 2":                             "accepts 1 arg",
		"kernelctl run report 7 --htm run.html":              "unknown flag: --htm",
		"kernelctl kernel register --profile x":              `required flag(s) "kernel"`,
		"kernelctl jobs":                                     "jobs",
		"kernelctl job show 1 --restart x":                   "invalid argument",
		"kernelctl kernel build mitgcm --publish=never --no": "unknown flag",
	} {
		for _, c := range commands("here", line, false) {
			if err := parse(c); err == nil || !strings.Contains(err.Error(), words) {
				t.Errorf("%s: %v, want %q", line, err, words)
			}
		}
	}
	for _, line := range []string{"kernelctl job show JOB", "kernelctl job show JOB --restart N", "kernelctl health -o json", "kernelctl --version", "kernelctl kernel register --help"} {
		for _, c := range commands("here", line, false) {
			if err := parse(c); err != nil {
				t.Errorf("%s: %v", line, err)
			}
		}
	}
}

// Every verb is documented.
func TestEveryVerbIsDocumented(t *testing.T) {
	told := map[string]bool{}
	for _, c := range found(t, "kernelctl") {
		if strings.Contains(c.where, "--help") {
			continue
		}
		if one, _, err := cli.Command().Find(c.words[1:]); err == nil {
			told[one.CommandPath()] = true
		}
	}
	// Shells and manual pages use the source of --help.
	unspoken := []string{"kernelctl man", "kernelctl help", "kernelctl completion"}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if c.HasSubCommands() && !slices.Contains(unspoken, c.CommandPath()) {
			for _, sub := range c.Commands() {
				walk(sub)
			}
			return
		}
		if !told[c.CommandPath()] && !slices.Contains(unspoken, c.CommandPath()) && !c.Hidden {
			t.Errorf("%s is not documented", c.CommandPath())
		}
	}
	walk(cli.Command())
}

// Every flag has a description.
func TestEveryFlagIsDescribed(t *testing.T) {
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" {
				t.Errorf("%s --%s has no description", c.CommandPath(), f.Name)
			}
		})
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(cli.Command())
}
