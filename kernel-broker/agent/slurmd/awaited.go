package slurmd

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"
)

const askTimeout = 10 * time.Second

// Awaited asks slurmctld by scontrol whether it waits for a boot of the node
// while no job has it. One that a job has is that job's to wait for.
func Awaited(ctx context.Context, scontrol, node string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, scontrol, "--oneliner", "show", "node", node) //nolint:gosec // G204: the configured program, no shell; a node name is checked
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil {
		return false, fmt.Errorf("%s: %w", scontrol, err)
	}
	return awaited(string(out)), nil
}

func awaited(out string) bool {
	for field := range strings.FieldsSeq(out) {
		if state, ok := strings.CutPrefix(field, "State="); ok {
			flags := strings.Split(state, "+")
			return flags[0] == "IDLE" && slices.Contains(flags, "POWERING_UP") && !slices.Contains(flags, "COMPLETING")
		}
	}
	return false
}
