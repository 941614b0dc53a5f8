// SPDX-License-Identifier: Apache-2.0

package slurmd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/atomicfile"
)

// Where systemd runs slurmd, the agent's command only asks systemd for a start,
// and anybody else may ask for one, too: an administrator, an upgrade. With -b
// slurmd claims that the node has booted, which to slurmctld is a crash that
// kills the node's jobs, unless it waits for a boot. So -b cannot stand in the
// unit. The agent lays down a claim for the time of a start of its own, and what
// prepares the start in the unit takes it up.

// claimFile is there while the agent asks for a start with -b.
func claimFile(markFile string) string { return filepath.Join(filepath.Dir(markFile), "slurmd.boot") }

// Options takes up the agent's claim, if there is one, for the start that is
// being prepared: it writes slurmd's options, those that the unit has anyway and
// -b, as a file for EnvironmentFile=. Without a claim there is no such file.
func Options(markFile, path, options string) error {
	err := os.Remove(claimFile(markFile))
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("options of %s: %w", name, err)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("claim of a boot: %w", err)
	}
	if strings.ContainsAny(options, "\n\x00") {
		return fmt.Errorf("options of %s: %q is more than a line", name, options)
	}
	words := strings.TrimSpace(options + " -b")
	return atomicfile.Write(path, []byte(`SLURMD_OPTIONS="`+quoted.Replace(words)+"\"\n"), 0o644)
}

// quoted is what systemd takes back inside double quotes.
var quoted = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "`", "\\`", `$`, `\$`)
