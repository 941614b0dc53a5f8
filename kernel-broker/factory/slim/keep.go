// SPDX-License-Identifier: Apache-2.0

package slim

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/kconfig"

	"go.yaml.in/yaml/v3"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/strictyaml"
)

// KeepList is a file of options that slimming may not touch, in groups that
// each have a reason.
type KeepList struct {
	Name        string      `yaml:"name"`
	Description string      `yaml:"description"`
	Groups      []KeepGroup `yaml:"groups"`
}

// KeepGroup is options, or patterns of options with "*", that stay for one
// reason.
type KeepGroup struct {
	Reason string `yaml:"reason"`
	// Assumed says that the group stands in for what nodes report: as soon as
	// any does, the report counts instead.
	Assumed bool         `yaml:"assumed"`
	Options []KeepOption `yaml:"options"`
}

// KeepOption is one line of a keep-list, and where it stands.
type KeepOption struct {
	Pattern string
	Where   string
	line    int
}

// UnmarshalYAML remembers the line.
func (o *KeepOption) UnmarshalYAML(node *yaml.Node) error {
	o.line = node.Line
	return node.Decode(&o.Pattern)
}

var (
	keepName    = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)
	keepPattern = regexp.MustCompile(`^[A-Za-z0-9_*]*[A-Za-z0-9_][A-Za-z0-9_*]*$`)
)

// ReadKeepLists reads every keep-list of a catalog's keep folder.
func ReadKeepLists(folder fs.FS) ([]KeepList, error) {
	names, err := fs.Glob(folder, "*.yaml")
	if err != nil {
		return nil, fmt.Errorf("keep-lists: %w", err)
	}
	if len(names) == 0 {
		return nil, errors.New("keep-lists: none in the folder")
	}
	var lists []KeepList
	for _, name := range names {
		data, err := fs.ReadFile(folder, name)
		if err != nil {
			return nil, fmt.Errorf("keep-lists: %w", err)
		}
		list, err := ParseKeepList(path.Join("keep", name), data)
		if err != nil {
			return nil, err
		}
		if list.Name+".yaml" != name {
			return nil, fmt.Errorf("keep/%s: its name is %q", name, list.Name)
		}
		lists = append(lists, list)
	}
	return lists, nil
}

// ParseKeepList is strict: an unknown key, a group without a reason and an
// option that stands twice are errors that name the line.
func ParseKeepList(file string, data []byte) (KeepList, error) {
	var list KeepList
	if err := strictyaml.Decode(file, data, &list); err != nil {
		return KeepList{}, err
	}
	if !keepName.MatchString(list.Name) || strings.TrimSpace(list.Description) == "" || len(list.Groups) == 0 {
		return KeepList{}, fmt.Errorf("%s: it needs a name in lower case, a description and groups", file)
	}
	seen := map[string]string{}
	for g := range list.Groups {
		group := &list.Groups[g]
		if strings.TrimSpace(group.Reason) == "" || len(group.Options) == 0 {
			return KeepList{}, fmt.Errorf("%s: group %d: it needs a reason and options", file, g+1)
		}
		for i := range group.Options {
			option := &group.Options[i]
			option.Where = fmt.Sprintf("%s:%d", file, option.line)
			if !keepPattern.MatchString(option.Pattern) || strings.HasPrefix(option.Pattern, "CONFIG_") {
				return KeepList{}, fmt.Errorf("%s: %q is not an option's name without CONFIG_", option.Where, option.Pattern)
			}
			if first, twice := seen[option.Pattern]; twice {
				return KeepList{}, fmt.Errorf("%s: %s stands already at %s", option.Where, option.Pattern, first)
			}
			seen[option.Pattern] = option.Where
		}
	}
	return list, nil
}

// Keep is the options that stay, each with the reason.
type Keep map[string]string

// KeepOf applies keep-lists to the options that are on. What they only assume
// of the nodes' hardware is left out when the nodes have reported it.
func KeepOf(lists []KeepList, config kconfig.Config, reported bool) Keep {
	keep := Keep{}
	for _, list := range lists {
		for _, group := range list.Groups {
			if group.Assumed && reported {
				continue
			}
			for _, option := range group.Options {
				reason := oneLine(group.Reason) + " (keep-list " + list.Name + ")"
				keep.pattern(option.Pattern, reason, config)
			}
		}
	}
	return keep
}

func (k Keep) pattern(pattern, reason string, config kconfig.Config) {
	if !strings.Contains(pattern, "*") {
		k.Add(pattern, reason)
		return
	}
	for symbol := range config {
		if matched, err := path.Match(pattern, symbol); err == nil && matched {
			k.Add(symbol, reason)
		}
	}
}

// Add keeps one more option. The first reason stands.
func (k Keep) Add(symbol, reason string) {
	if _, kept := k[symbol]; !kept {
		k[symbol] = reason
	}
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
