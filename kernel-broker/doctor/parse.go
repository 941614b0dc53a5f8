// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// SlurmConfig is what scontrol show config prints: values by key. Newer versions print keys with several values as
// Key[0], Key[1].
type SlurmConfig map[string][]string

// index is the suffix of a key with several values.
var index = regexp.MustCompile(`\[\d+\]$`)

// ParseSlurmConfig reads the output of scontrol show config. Keys are lower case; unset values are left out.
func ParseSlurmConfig(text string) SlurmConfig {
	config := SlurmConfig{}
	for line := range strings.Lines(text) {
		key, value, found := strings.Cut(line, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		if !found || key == "" || strings.ContainsAny(key, " \t") {
			continue
		}
		switch value {
		case "", "(null)", "(none)", "N/A":
			continue
		}
		key = strings.ToLower(index.ReplaceAllString(key, ""))
		config[key] = append(config[key], value)
	}
	return config
}

// ParseMoving reads from scontrol show reservation the names of those whose nodes Slurm chooses anew when one is drained.
func ParseMoving(text string) []string {
	var names []string
	for line := range strings.Lines(text) {
		name, flags := "", []string(nil)
		for _, word := range strings.Fields(line) {
			switch key, value, _ := strings.Cut(word, "="); key {
			case "ReservationName":
				name = value
			case "Flags":
				flags = strings.Split(value, ",")
			}
		}
		fixed := slices.ContainsFunc(flags, func(flag string) bool {
			return slices.Contains([]string{"SPEC_NODES", "ALL_NODES", "PART_NODES", "STATIC", "MAINT"}, flag)
		})
		if name != "" && !fixed {
			names = append(names, name)
		}
	}
	return names
}

// ParsePartitions reads scontrol show partition, one on a line.
func ParsePartitions(text string) []Partition {
	var list []Partition
	for line := range strings.Lines(text) {
		var p Partition
		for _, word := range strings.Fields(line) {
			switch key, value, _ := strings.Cut(word, "="); key {
			case "PartitionName":
				p.Name = value
			case "Default":
				p.Default = value == "YES"
			case "OverSubscribe":
				// FORCE:1 runs one job at a time and shares nothing.
				p.Shares = strings.HasPrefix(value, "FORCE") && value != "FORCE:1"
			}
		}
		if p.Name != "" {
			list = append(list, p)
		}
	}
	return list
}

// Values of a key.
func (c SlurmConfig) Values(key string) []string { return c[strings.ToLower(key)] }

// Value is the first one; empty if the key is not set.
func (c SlurmConfig) Value(key string) string {
	if v := c.Values(key); len(v) > 0 {
		return v[0]
	}
	return ""
}

// Has reports whether a list has a word, or word=value.
func (c SlurmConfig) Has(key, word string) bool {
	for _, value := range c.Values(key) {
		for item := range strings.SplitSeq(value, ",") {
			item, _, _ = strings.Cut(strings.TrimSpace(item), "=")
			if strings.EqualFold(item, word) {
				return true
			}
		}
	}
	return false
}

// Seconds is a duration such as "60 sec"; false without one, and for Slurm's words and numbers that stand for none.
func (c SlurmConfig) Seconds(key string) (int, bool) {
	number, _, _ := strings.Cut(c.Value(key), " ")
	n, err := strconv.ParseUint(number, 10, 31)
	const noValue, infinite = 65534, 65533
	if err != nil || n == noValue || n == infinite {
		return 0, false
	}
	return int(n), true
}

// AtLeast reports whether the running slurmctld has at least this version.
func (c SlurmConfig) AtLeast(major, minor int) bool {
	have := strings.Split(c.Value("SLURM_VERSION"), ".")
	if len(have) < 2 {
		return false
	}
	a, errA := strconv.Atoi(have[0])
	b, errB := strconv.Atoi(have[1])
	return errA == nil && errB == nil && (a > major || a == major && b >= minor)
}

// InstalledRelease is the part of a Slurm program's version that plugins depend on, such as 22.05, from the output of
// its --version.
func InstalledRelease(text string) string { return slurmRelease.FindString(text) }

var slurmRelease = regexp.MustCompile(`[0-9]+\.[0-9]+`)

// SlurmRelease is the version in a plugin: major, minor and micro, a byte or two each.
func SlurmRelease(version uint32) string { return fmt.Sprintf("%d.%02d", version>>16, version>>8&0xff) }

// pluginFile is the product's plugin.
const pluginFile = "kernel_profile.so"

// PlugstackLine is a line of plugstack.conf.
type PlugstackLine struct {
	// Word is required, optional or include.
	Word string
	// Path of the plugin, or the pattern of an include.
	Path      string
	Arguments []string
	// File that the line is in, where that is known.
	File string
}

// Ours reports whether the line names the product's plugin.
func (l PlugstackLine) Ours() bool { return l.Word != "include" && path.Base(l.Path) == pluginFile }

// Argument is the value of NAME=; empty without.
func (l PlugstackLine) Argument(name string) string {
	for _, a := range l.Arguments {
		if value, found := strings.CutPrefix(a, name+"="); found {
			return value
		}
	}
	return ""
}

// ParsePlugstack reads plugstack.conf. Lines that Slurm would refuse are left out.
func ParsePlugstack(text string) []PlugstackLine {
	var lines []PlugstackLine
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) < 2 || !slices.Contains([]string{"required", "optional", "include"}, strings.ToLower(words[0])) {
			continue
		}
		lines = append(lines, PlugstackLine{Word: strings.ToLower(words[0]), Path: words[1], Arguments: words[2:]})
	}
	return lines
}

var (
	loads  = regexp.MustCompile(`(?:dofile|loadfile)\s*\(?\s*["']([^"']*kernel[-_]broker[^"']*)["']`)
	submit = regexp.MustCompile(`kernel_broker\.submit\s*\(`)
	modify = regexp.MustCompile(`kernel_broker\.modify\s*\(`)
	// defines is in the product's own file only.
	defines = regexp.MustCompile(`(?m)^function\s+kernel_broker\.submit\s*\(`)
	// luaComment to the line's end; --[[ ]] is taken out before.
	luaComment = regexp.MustCompile(`--[^\n]*`)
	luaBlock   = regexp.MustCompile(`(?s)--\[\[.*?\]\]`)
)

// ParseJobSubmit says what a job_submit.lua does for the product.
func ParseJobSubmit(text string) JobSubmit {
	text = luaComment.ReplaceAllString(luaBlock.ReplaceAllString(text, ""), "")
	s := JobSubmit{Ours: defines.MatchString(text), Submit: submit.MatchString(text), Modify: modify.MatchString(text)}
	if m := loads.FindStringSubmatch(text); m != nil {
		s.Loads = m[1]
	}
	return s
}
