// SPDX-License-Identifier: Apache-2.0

// Package tune searches a kernel's configuration by measuring: each option that a
// catalog proposes is tried on the application's workload, on top of what was kept
// before it, and is kept if it wins.
//
// The package decides and does nothing: kernels are built and measured behind Ask.
package tune

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/site"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/strictyaml"
)

// Proposal is a fragment that may make a kernel faster.
type Proposal struct {
	// Fragment is a name in catalog/fragments. What it sets replaces what the
	// recipe's fragments set.
	Fragment string `yaml:"fragment" json:"fragment"`
	// Title in a few words.
	Title string `yaml:"title" json:"title"`
	// Group names proposals of which a kernel can have one, such as tick rates.
	Group string `yaml:"group" json:"group,omitempty"`
	// GivesUp is what a site loses with it, and has to allow; empty for nothing.
	GivesUp site.Loss `yaml:"gives_up" json:"gives_up,omitempty"`
}

// File of the proposals in a catalog.
const File = "proposals.yaml"

// Load reads a catalog's proposals, in the order in which they are tried.
func Load(catalog string) ([]Proposal, error) {
	path := filepath.Join(catalog, File)
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("proposals: %w", err)
	}
	return Parse(path, text)
}

var word = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)

// Parse is strict: an unknown key or a wrong value is an error with file and line.
func Parse(path string, text []byte) ([]Proposal, error) {
	var file struct {
		Proposals []Proposal `yaml:"proposals"`
	}
	if err := strictyaml.Decode(path, text, &file); err != nil {
		return nil, err
	}
	if len(file.Proposals) == 0 {
		return nil, fmt.Errorf("%s: key %q: none", path, "proposals")
	}
	seen := map[string]bool{}
	for i, p := range file.Proposals {
		key, wrong := p.wrong()
		if seen[p.Fragment] {
			key, wrong = "fragment", "is there twice"
		}
		if wrong != "" {
			line := strictyaml.LineOf(text, "proposals", i, key)
			return nil, fmt.Errorf("%s: line %d: key %q of proposal %q: %s", path, line, key, p.Fragment, wrong)
		}
		seen[p.Fragment] = true
	}
	return file.Proposals, nil
}

func (p Proposal) wrong() (key, text string) {
	switch {
	case !word.MatchString(p.Fragment):
		return "fragment", "is not a fragment's name"
	case strings.TrimSpace(p.Title) == "" || strings.ContainsRune(p.Title, '\n'):
		return "title", "is not a line"
	case p.Group != "" && !word.MatchString(p.Group):
		return "group", fmt.Sprintf("%q is not a word", p.Group)
	case p.GivesUp != "" && !slices.Contains(site.Losses, p.GivesUp):
		return "gives_up", fmt.Sprintf("%q is none of %s", p.GivesUp, site.FormatLosses())
	}
	return "", ""
}
