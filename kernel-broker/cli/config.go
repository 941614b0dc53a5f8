// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/kernelbroker/kernelbroker/kernel-broker/api/client"
)

func (a *app) configCommand() *cobra.Command {
	check := &cobra.Command{Use: "check FILE", Short: "Validate a settings file without the broker", Args: cobra.ExactArgs(1), RunE: a.run(a.configCheck)}
	return noun("config", "Settings of kernelctl and of Slurm's hooks", check)
}

func (a *app) configCheck(_ context.Context, args []string) error {
	// Without a file the settings are the defaults; here it was named.
	if _, err := os.Stat(args[0]); err != nil {
		return fmt.Errorf("settings: %w", err)
	}
	if _, err := client.LoadConfig(args[0]); err != nil {
		return err
	}
	a.say("%s is valid", args[0])
	return nil
}
