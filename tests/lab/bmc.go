// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"os"
)

// BMC is the tool of a management controller for programs on the front-end: it resets a node or cuts its power.
func BMC(ctx context.Context, action, node string) error {
	command, ok := map[string]string{"reset": "system_reset", "off": "quit"}[action]
	if !ok {
		return fmt.Errorf("action %q: want reset or off", action)
	}
	if _, err := nodeIndex(node, maxNodes); err != nil {
		return err
	}
	inside := layout{insideDir}
	if _, err := os.Stat(inside.qmp(node)); err != nil {
		return fmt.Errorf("node %q: no monitor here (this is for the lab's front-end): %w", node, err)
	}
	if err := QMP(ctx, inside.qmp(node), command); err != nil {
		return fmt.Errorf("node %q: %w", node, err)
	}
	return nil
}
