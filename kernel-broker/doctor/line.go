// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"path"
	"slices"
	"strings"
)

// Files of Slurm's that lines are for.
const (
	SlurmFile     = "slurm.conf"
	CgroupFile    = "cgroup.conf"
	PlugstackFile = "plugstack.conf"
)

// Line is what a file of Slurm's lacks.
type Line struct {
	File string `json:"file"`
	// Key and Value make the line; without a key the value is all of it.
	Key   string `json:"key,omitempty"`
	Value string `json:"value"`
	// Replaces is the line that it stands in place of; empty if there is none.
	Replaces string `json:"replaces,omitempty"`
	// adds: the value is a word of a list.
	adds bool
}

func (l Line) String() string {
	if l.Key == "" {
		return l.Value
	}
	return l.Key + "=" + l.Value
}

// lacks gives the last finding the line that mends it.
func (e *examination) lacks(file, key, value string) {
	e.findings[len(e.findings)-1].Line = &Line{File: file, Key: key, Value: value}
}

// lacksWord is the same for a word of a list.
func (e *examination) lacksWord(key, word string) {
	e.lacks(SlurmFile, key, word)
	e.findings[len(e.findings)-1].Line.adds = true
}

// OfFiles are the results of checks that need no more than Slurm's files: they can be made before slurmctld is restarted.
func OfFiles(results []Result) []Result {
	files := []string{"reboot-program", "reboot-from-controller", "prolog-slurmctld", "epilog-slurmctld", "epilog", "prolog-flags", "hold-on-prolog-fail",
		"job-requeue", "prolog-timeout", "job-submit-plugin", "job-submit-script", "job-cgroups", "plugstack", "plugin-version"}
	return slices.DeleteFunc(slices.Clone(results), func(r Result) bool { return !slices.Contains(files, r.Check) })
}

// Lines are those that mend findings, words of one list in one line, and the findings that no line mends.
func Lines(results []Result, config SlurmConfig) (lines []Line, others []Finding) {
	for _, r := range results {
		for _, f := range r.Findings {
			if f.Line == nil {
				others = append(others, f)
				continue
			}
			line := *f.Line
			have := strings.Join(config.Values(line.Key), ",")
			if at := slices.IndexFunc(lines, func(l Line) bool { return l.Key == line.Key && l.Key != "" }); at >= 0 {
				lines[at].Value += "," + line.Value
				continue
			}
			if have != "" {
				line.Replaces = line.Key + "=" + have
			}
			if have != "" && line.adds {
				line.Value = have + "," + line.Value
			}
			lines = append(lines, line)
		}
	}
	return lines, others
}

// lineKinds are what slurm.conf says of single objects.
var lineKinds = []string{"nodename", "partitionname", "nodeset", "downnodes", "frontendname"}

// ParseSlurmFile reads slurm.conf or cgroup.conf: its settings, and the files that it includes.
func ParseSlurmFile(text string) (config SlurmConfig, includes []string) {
	config = SlurmConfig{}
	for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", " ")) {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) == 2 && strings.EqualFold(words[0], "include") {
			includes = append(includes, words[1])
			continue
		}
		for i, word := range words {
			key, value, found := strings.Cut(word, "=")
			key = strings.ToLower(key)
			if i == 0 && slices.Contains(lineKinds, key) {
				break
			}
			if value = strings.Trim(value, `"`); found && value != "" {
				config[key] = append(config[key], value)
			}
		}
	}
	return config, includes
}

// plugstackLine is the plugin's.
func plugstackLine() string { return "required " + path.Join("/usr/lib/kernel-broker", pluginFile) }
