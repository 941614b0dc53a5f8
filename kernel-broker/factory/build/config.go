// SPDX-License-Identifier: Apache-2.0

package build

import (
	"fmt"
	"os"
	"sort"
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
				config[symbol] = notSet
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
	symbols := make([]string, 0, len(c))
	for symbol := range c {
		symbols = append(symbols, symbol)
	}
	sort.Strings(symbols)
	var text strings.Builder
	for _, symbol := range symbols {
		text.WriteString(configLine(symbol, c[symbol]))
		text.WriteByte('\n')
	}
	return text.String()
}

// Set reports whether the kernel has the symbol, built in or as a module.
func (c Config) Set(symbol string) bool { return c.on(symbol) }

// on reports whether the symbol is y or m.
func (c Config) on(symbol string) bool {
	value := c[symbol]
	return value == "y" || value == "m"
}
