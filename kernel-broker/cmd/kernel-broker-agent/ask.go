// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/config"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/local"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/slurmd"
)

const statusTimeout = 5 * time.Second

func statusCommand(path *string) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "status [--output table|json]",
		Short: "Show how the running agent sees this node",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "table" && output != "json" {
				return usageError{fmt.Errorf("--output %q is neither table nor json", output)}
			}
			answer, err := ask(cmd.Context(), *path, statusTimeout, local.Request{Op: local.Status})
			if err != nil {
				return err
			}
			if answer.Status == nil {
				return errors.New("agent: answered without a status")
			}
			if output == "json" {
				encoder := json.NewEncoder(cmd.OutOrStdout())
				encoder.SetIndent("", "  ")
				return encoder.Encode(answer.Status)
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), table(*answer.Status))
			return err
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	return cmd
}

func table(s local.NodeStatus) string {
	yesNo := map[bool]string{true: "yes", false: "no"}
	kernel := "unproven"
	if s.Profile != "" {
		kernel = fmt.Sprintf("%s@%d", s.Profile, s.Version)
	}
	rows := [][2]string{
		{"node", s.Node}, {"connected", yesNo[s.Connected]}, {"generation", fmt.Sprint(s.Generation)},
		{"kernel", kernel}, {"attested", yesNo[s.Attested]}, {"release", s.Release}, {"build id", s.BuildID},
		{"boot id", s.BootID}, {"jobs", strings.Trim(fmt.Sprint(s.Jobs), "[]")},
		{"switch", s.Switch}, {"switch to", s.SwitchTo}, {"cause", s.Cause}, {"doing", s.Doing},
		{"slurmd", map[bool]string{true: "running", false: "not running"}[s.SlurmdRunning]},
		{"slurmd allowed", yesNo[s.SlurmdAllowed]}, {"ready", yesNo[s.Ready]},
	}
	var text strings.Builder
	for _, row := range rows {
		if row[1] != "" {
			fmt.Fprintf(&text, "%-15s %s\n", row[0], row[1])
		}
	}
	return text.String()
}

func waitCommand(path *string) *cobra.Command {
	var timeout time.Duration
	var options string
	cmd := &cobra.Command{
		Use:   "wait-ready [--timeout DURATION] [--options FILE]",
		Short: "Wait until slurmd may be started on this node",
		Long: `wait-ready is for ExecStartPre= of slurmd.service, where systemd runs slurmd. It
exits 0 when the agent permits slurmd on the running kernel, and 1 after the time
limit. With --options it writes FILE for EnvironmentFile= if Slurm is to see a boot
in this start: SLURMD_OPTIONS from the environment, and -b.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if timeout <= 0 {
				return usageError{fmt.Errorf("--timeout %v is not positive", timeout)}
			}
			if err := waitReady(cmd.Context(), *path, timeout); err != nil || options == "" {
				return err
			}
			c, err := config.Read(*path)
			if err != nil {
				return usageError{err}
			}
			return slurmd.Options(c.Slurmd.MarkFile, options, os.Getenv("SLURMD_OPTIONS"))
		},
	}
	cmd.Flags().StringVar(&options, "options", "", "write slurmd's options to this `file`, or remove it")
	cmd.Flags().DurationVar(&timeout, "timeout", time.Minute, "how long to wait")
	return cmd
}

// waitReady retries while there is no agent: both may start at the same time.
func waitReady(ctx context.Context, path string, timeout time.Duration) error {
	deadline := time.Now().Add(timeout)
	for {
		left := time.Until(deadline)
		answer, err := ask(ctx, path, left, local.Request{Op: local.WaitReady, TimeoutMS: max(left.Milliseconds(), 1)})
		var usage usageError
		if err == nil && answer.Ready || errors.As(err, &usage) {
			return err
		}
		if time.Until(deadline) <= 0 || ctx.Err() != nil {
			return fmt.Errorf("not ready within %v: %w", timeout, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(min(200*time.Millisecond, max(time.Until(deadline), 0))):
		}
	}
}

func ask(ctx context.Context, path string, timeout time.Duration, r local.Request) (local.Answer, error) {
	c, err := config.Read(path)
	if err != nil {
		return local.Answer{}, usageError{err}
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	answer, err := local.Ask(ctx, c.Socket, r)
	if err == nil && answer.Error != "" {
		err = errors.New(answer.Error)
	}
	return answer, err
}
