// SPDX-License-Identifier: Apache-2.0

package kconfig

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/strictyaml"
)

// Renames are the options of a catalog that another release of Linux knows by another name, or no longer.
type Renames struct {
	Renamed map[string]string `yaml:"renamed"`
	// Gone are options whose code is there without them, or is no more.
	Gone []string `yaml:"gone"`
}

// ReadRenames reads a file of renames; where there is none, nothing is renamed.
func ReadRenames(path string) (Renames, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return Renames{}, nil
	}
	if err != nil {
		return Renames{}, fmt.Errorf("renames: %w", err)
	}
	return ParseRenames(path, data)
}

// ParseRenames is strict.
func ParseRenames(path string, data []byte) (Renames, error) {
	var r Renames
	if err := strictyaml.Decode(path, data, &r); err != nil {
		return Renames{}, err
	}
	for from, to := range r.Renamed {
		if err := errors.Join(validSymbol(from), validSymbol(to)); err != nil {
			return Renames{}, fmt.Errorf("%s: line %d: %w", path, strictyaml.LineOf(data, "renamed", from), err)
		}
		if slices.Contains(r.Gone, from) {
			return Renames{}, fmt.Errorf("%s: line %d: CONFIG_%s is renamed and gone", path, strictyaml.LineOf(data, "renamed", from), from)
		}
	}
	for i, symbol := range r.Gone {
		if err := validSymbol(symbol); err != nil {
			return Renames{}, fmt.Errorf("%s: line %d: %w", path, strictyaml.LineOf(data, "gone", i), err)
		}
	}
	return r, nil
}

// Fragment with the names of that release.
func (r Renames) Fragment(f Fragment) Fragment {
	var options []Option
	for _, option := range f.Options {
		if slices.Contains(r.Gone, option.Symbol) {
			continue
		}
		if name := r.Renamed[option.Symbol]; name != "" {
			option.Symbol = name
		}
		options = append(options, option)
	}
	f.Options = options
	return f
}
