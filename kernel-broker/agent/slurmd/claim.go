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

// Under systemd the agent only requests a start of slurmd, and administrators or upgrades may request one too. With -b
// slurmd reports a boot of the node, which makes slurmctld kill the node's jobs unless it waits for a boot. So -b must
// not be in the unit. The agent creates a claim during its own start, and the unit's start preparation consumes it.

// claimFile exists while the agent requests a start with -b.
func claimFile(markFile string) string { return filepath.Join(filepath.Dir(markFile), "slurmd.boot") }

// DropClaim removes the claim of an agent that was killed before it was consumed, which a later start would take for its own.
func (s *Slurmd) DropClaim() error {
	if err := os.Remove(claimFile(s.MarkFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("claim of a boot: %w", err)
	}
	return nil
}

// Options consumes the agent's claim, if any, for the start in preparation: it writes slurmd's options, the unit's own
// plus -b, as a file for EnvironmentFile=. Without a claim it writes no file.
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

// quoted escapes what systemd unescapes inside double quotes.
var quoted = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "`", "\\`", `$`, `\$`)
