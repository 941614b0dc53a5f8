// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/inventory"
)

const hardwareLong = `Print this node's hardware, for kernelctl kernel build --nodes: its PCI devices, the
modaliases of all devices, loaded modules, drivers in use and mounted file systems,
as JSON on one line. It contacts no agent and no broker, reads /proc and /sys only,
and needs neither root nor a configuration.

Run it on the distribution's own kernel, which has a driver for everything, with
the node's file systems mounted. Outputs of several nodes can be concatenated.`

func hardwareCommand() *cobra.Command {
	var node, proc, sys string
	cmd := &cobra.Command{
		Use:   "hardware [--node NAME]",
		Short: "Print the hardware that kernels for this node must support",
		Long:  hardwareLong,
		Example: "  kernel-broker-agent hardware >n1.json\n" +
			"  srun --nodes 16 --ntasks-per-node 1 kernel-broker-agent hardware >nodes.json",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if node == "" {
				host, err := os.Hostname()
				if err != nil {
					return fmt.Errorf("host name: %w", err)
				}
				if node, _, _ = strings.Cut(host, "."); node == "" {
					return usageError{errors.New("this machine has no name: give --node")}
				}
			}
			report, err := inventory.ReadHardware(proc, sys, node)
			if err != nil {
				return err
			}
			return inventory.Write(cmd.OutOrStdout(), report)
		},
	}
	f := cmd.Flags()
	f.StringVar(&node, "node", "", "the node's `name` (default: the short host name)")
	f.StringVar(&proc, "proc", "/proc", "where the proc file system is mounted")
	f.StringVar(&sys, "sys", "/sys", "where the sys file system is mounted")
	return cmd
}
