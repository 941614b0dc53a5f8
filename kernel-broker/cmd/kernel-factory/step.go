// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/pipeline"
)

// stepCommand is what a Slurm job of kernelctl kernel build runs.
func stepCommand(failed *bool) *cobra.Command {
	var plan string
	cmd := &cobra.Command{
		Use:   "step --plan FILE TASK",
		Short: "Do one step of a kernel's build, as a job of kernelctl kernel build --where slurm",
		Long: `Do the step that the file TASK names, of the build that the file FILE describes,
and leave its result, its log and its failure in the build's cache folder, where
kernelctl finds them. Both files are made by kernelctl kernel build. A machine on
which the same step would come to another result, by its compiler for example,
is refused.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			*failed = true
			options, err := pipeline.LoadOptions(plan)
			if err != nil {
				return err
			}
			p, err := pipeline.Open(cmd.Context(), options)
			if err != nil {
				return err
			}
			g, err := p.Graph()
			if err != nil {
				return err
			}
			return pipeline.StoreIn(options.Cache).Work(cmd.Context(), args[0], g)
		},
	}
	cmd.Flags().StringVar(&plan, "plan", "", "file that describes the build")
	_ = cmd.MarkFlagRequired("plan") // defined in the line above
	return cmd
}
