// SPDX-License-Identifier: Apache-2.0

package kconfig

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// Config is a kernel configuration: the value of each symbol that is set. A
// symbol that .config names as not set has the value "n"; one that is absent
// does not exist for this configuration, as its dependencies are not met.
type Config map[string]string

// ReadConfig reads a .config file as kconfig writes it.
func ReadConfig(path string) (Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	return ParseConfig(string(data)), nil
}

// ParseConfig takes every line that sets a symbol; all others are comments.
func ParseConfig(text string) Config {
	config := Config{}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if rest, ok := strings.CutPrefix(line, "# CONFIG_"); ok {
			if symbol, off := strings.CutSuffix(rest, " is not set"); off {
				config[symbol] = Off
			}
			continue
		}
		if rest, ok := strings.CutPrefix(line, "CONFIG_"); ok {
			if symbol, value, set := strings.Cut(rest, "="); set {
				config[symbol] = value
			}
		}
	}
	return config
}

// Text of the configuration, in the order of symbols.
func (c Config) Text() string {
	var text strings.Builder
	for _, symbol := range slices.Sorted(maps.Keys(c)) {
		text.WriteString(Line(symbol, c[symbol]))
		text.WriteByte('\n')
	}
	return text.String()
}

// On reports whether the symbol is built in or a module.
func (c Config) On(symbol string) bool { return c[symbol] == "y" || c[symbol] == "m" }
