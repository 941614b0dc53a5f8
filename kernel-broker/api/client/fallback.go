// SPDX-License-Identifier: Apache-2.0

package client

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// setting is a line of a settings file with one value.
var setting = regexp.MustCompile(`(?m)^([a-z_]+):[ \t]+["']?([^"'#\s]+)["']?[ \t]*(?:#.*)?$`)

// FallbackConfig returns settings with which a hook can hold a job when the file at path is invalid: the defaults, with its
// readable paths of Slurm, the log and the hook's own files.
func FallbackConfig(path string) Config {
	c := DefaultConfig()
	text, err := os.ReadFile(path)
	if err != nil {
		return c
	}
	for _, line := range setting.FindAllStringSubmatch(string(text), -1) {
		key, value := line[1], line[2]
		if key == "hold_after" {
			if n, err := strconv.Atoi(value); err == nil && n >= 1 && n <= maxHoldAfter {
				c.HoldAfter = n
			}
			continue
		}
		to := map[string]*string{"scontrol": &c.Scontrol, "slurm_conf": &c.SlurmConf, "state_dir": &c.StateDir, "log_file": &c.LogFile}[key]
		if to != nil && filepath.IsAbs(value) && !strings.Contains(value, "..") {
			*to = value
		}
	}
	return c
}
