// SPDX-License-Identifier: Apache-2.0

// Package kconfig reads what a kernel tree's Kconfig files say, configurations
// and the catalog's fragments of them, and lays fragments over each other. It
// predicts which options go with others, and is no solver: kconfig itself has
// the last word on every configuration.
package kconfig

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

// Config is a kernel configuration: the value of each symbol that is set. A
// symbol that .config names as not set has the value "n"; one that is absent
// does not exist for this configuration, as its dependencies are not met.
type Config map[string]string

// ReadConfig reads a .config file as kconfig writes it, or /proc/config.gz.
func ReadConfig(path string) (Config, error) {
	text, err := ReadText(path)
	if err != nil {
		return nil, err
	}
	return ParseConfig(text), nil
}

// ReadText is the text of a .config file, which may be compressed by gzip.
func ReadText(path string) (string, error) {
	data, err := os.ReadFile(path)
	if err == nil && bytes.HasPrefix(data, gzipMagic) {
		data, err = Gunzip(data)
	}
	if err != nil {
		return "", fmt.Errorf("configuration: %w", err)
	}
	return string(data), nil
}

var gzipMagic = []byte("\x1f\x8b")

// maxConfig is far above what a distribution's configuration takes.
const maxConfig = 4 << 20

// Gunzip unpacks a configuration, and stops where it has no end.
func Gunzip(packed []byte) ([]byte, error) {
	reader, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(reader, maxConfig+1))
	if err == nil && len(text) > maxConfig {
		err = fmt.Errorf("more than %d bytes", maxConfig)
	}
	return text, err
}

// header is kconfig's first comment: the architecture and the version.
var header = regexp.MustCompile(`(?m)^# Linux/(\S+) (\S+) Kernel Configuration`)

// Header says for which architecture and version kconfig wrote a configuration;
// empty where it does not say.
func Header(text string) (architecture, version string) {
	if found := header.FindStringSubmatch(text); found != nil {
		return found[1], found[2]
	}
	return "", ""
}

// blanks end lines of files that went through an editor or another system.
const blanks = " \t\r\n"

// ParseConfig takes every line that sets a symbol; all others are comments.
func ParseConfig(text string) Config {
	config := Config{}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, blanks)
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

// Lost is an option that was asked for and is not in the configuration that
// kconfig made of it.
type Lost struct {
	Option Option
	// Now is the value it has instead, or "" when the symbol is absent.
	Now string
	// Unmet are the conditions from Kconfig files that do not hold.
	Unmet []string
	// Unknown says that no Kconfig file defines the symbol.
	Unknown bool
}

// LostError names every option that did not survive.
type LostError struct {
	Lost []Lost
}

func (e *LostError) Error() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%d of the options asked for did not survive olddefconfig:", len(e.Lost))
	for _, lost := range e.Lost {
		fmt.Fprintf(&text, "\n  %s: %s", lost.Option.Where(), lost.Option)
		switch {
		case lost.Unknown:
			text.WriteString(": no Kconfig file of this source defines it")
		case lost.Now == "":
			text.WriteString(": absent")
		default:
			fmt.Fprintf(&text, ": is now %s", Line(lost.Option.Symbol, lost.Now))
		}
		for _, condition := range lost.Unmet {
			fmt.Fprintf(&text, "\n      unmet: %s", condition)
		}
	}
	return text.String()
}

// CheckSurvival compares what was asked for with what kconfig left of it. An
// option asked to be off may be absent. Definitions may be nil; with them the
// error says what each lost option depends on.
func CheckSurvival(asked Merged, got Config, definitions *Tree) error {
	var lost []Lost
	for _, option := range asked.Options {
		now := got[option.Symbol]
		if now == option.Value || option.Value == Off && now == "" {
			continue
		}
		loss := Lost{Option: option, Now: now}
		if definitions != nil {
			loss.Unmet = definitions.Unmet(option.Symbol, got)
			loss.Unknown = !definitions.Defines(option.Symbol)
		}
		lost = append(lost, loss)
	}
	if len(lost) == 0 {
		return nil
	}
	return &LostError{Lost: lost}
}

// Outside returns what is lost outside the options of an overlay: those that
// depend on an option which the overlay switches off. It is an error where an
// option of the overlay itself is lost, one has another value, or no file of the
// source defines it.
func (e *LostError) Outside(overlay Fragment) ([]Lost, error) {
	own := map[string]bool{}
	for _, option := range overlay.Options {
		own[option.Symbol] = true
	}
	var taken, wrong []Lost
	for _, lost := range e.Lost {
		if own[lost.Option.Symbol] || lost.Unknown || lost.Now != "" && lost.Now != Off {
			wrong = append(wrong, lost)
		} else {
			taken = append(taken, lost)
		}
	}
	if len(wrong) > 0 {
		return nil, &LostError{Lost: wrong}
	}
	return taken, nil
}
