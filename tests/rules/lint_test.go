// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// A check of the linter's that is limited to folders which are gone is off, or on, everywhere: each path, and each of its
// alternatives, is that of a file.
func TestPathsOfTheLinterExist(t *testing.T) {
	var config struct {
		Linters struct {
			Exclusions struct {
				Rules []struct {
					Path       string `yaml:"path"`
					PathExcept string `yaml:"path-except"`
				} `yaml:"rules"`
			} `yaml:"exclusions"`
		} `yaml:"linters"`
	}
	if err := yaml.Unmarshal(read(t, ".golangci.yaml"), &config); err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, rule := range config.Linters.Exclusions.Rules {
		for _, pattern := range []string{rule.Path, rule.PathExcept} {
			if pattern == "" {
				continue
			}
			for _, one := range alternatives(pattern) {
				checked++
				found := regexp.MustCompile(one)
				if !slices.ContainsFunc(files(t, ".go"), found.MatchString) {
					t.Errorf(".golangci.yaml: %s: no file has the path %s", pattern, one)
				}
			}
		}
	}
	if checked < 10 {
		t.Errorf("only %d paths found", checked)
	}
}

// alternatives splits a pattern at the bars of its group.
func alternatives(pattern string) []string {
	before, rest, has := strings.Cut(pattern, "(")
	inside, after, closed := strings.Cut(rest, ")")
	if !has || !closed {
		return []string{pattern}
	}
	var all []string
	for one := range strings.SplitSeq(inside, "|") {
		all = append(all, before+one+after)
	}
	return all
}
