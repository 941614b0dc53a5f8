// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/authz"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/power"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/server"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/digest"
)

// warning is what an administrator should mend while the broker works on.
type warning struct{ error }

// component is the health of one part. Each is a row, also where a file has several faults.
func component(name string, look func() (string, error)) server.Component {
	detail, err := look()
	if err == nil {
		return server.Component{Name: name, Healthy: true, Detail: detail}
	}
	text := strings.ReplaceAll(err.Error(), "\n", "; ")
	if errors.As(err, &warning{}) {
		return server.Component{Name: name, Healthy: true, Detail: detail, Warning: text}
	}
	return server.Component{Name: name, Detail: text}
}

// configurationHealth compares broker.yaml with what the broker runs with. An edit that nobody put in force looks as if it
// were, until a restart months later.
func (c config) configurationHealth() (string, error) {
	if c.path == "" {
		return "no file", nil
	}
	text, err := os.ReadFile(c.path)
	if err != nil {
		return "", warning{fmt.Errorf("the broker would not start again: %w", err)}
	}
	if digest.Of(text) == c.digest {
		return c.path + ", as it is now", nil
	}
	if _, err := load(c.path); err != nil {
		return "", warning{fmt.Errorf("edited, not in force, and the broker would not start with it: %w", err)}
	}
	return "", warning{fmt.Errorf("%s was edited and is not in force until systemctl restart kernel-broker", c.path)}
}

// policyHealth also compares the file with the policy in force.
func (c config) policyHealth(auth interface {
	Health() (string, error)
	State() authz.State
}) (string, error) {
	detail, err := auth.Health()
	if err != nil || c.Policy == "" {
		return detail, err
	}
	state := auth.State()
	file, err := authz.Load(c.Policy, nil)
	switch {
	case errors.Is(err, fs.ErrNotExist) && state.Policy.File == "":
		return detail, nil
	case err != nil:
		return detail, warning{fmt.Errorf("the policy of %s stays in force: %w", state.Since.UTC().Format(time.RFC3339), err)}
	case file.Digest != state.Digest:
		return detail, warning{fmt.Errorf("%s was edited and is not in force until systemctl reload kernel-broker", c.Policy)}
	}
	return detail, nil
}

// resetHealth says whether reset_command can be run.
func (c config) resetHealth() (string, error) {
	if len(c.ResetCommand) == 0 {
		return "none: a silent node is drained", nil
	}
	command, err := power.New(c.ResetCommand)
	if err != nil {
		return "", err
	}
	if err := command.Check(); err != nil {
		return "", warning{err}
	}
	return c.ResetCommand[0], nil
}
