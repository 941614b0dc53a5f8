// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

func (a *app) jobWhyCommand() *cobra.Command {
	return a.command("why ID", "Say what a job waits for, whether or not it asked for a kernel", cobra.ExactArgs(1), a.jobWhy)
}

func (a *app) jobWhy(ctx context.Context, args []string) error {
	id, err := strconv.ParseUint(args[0], 10, 32)
	if err != nil || id == 0 {
		return usageError{fmt.Errorf("%q is not a job's number", args[0])}
	}
	why, err := call(ctx, a, api.NewAllocationServiceClient, api.AllocationServiceClient.GetJobWait, &api.GetJobWaitRequest{JobId: uint32(id)})
	if err != nil {
		return err
	}
	return a.show(why, func(p *page) {
		if len(why.GetWaits()) == 0 {
			p.line("job %s waits for nothing: Slurm shows it as %s", why.GetReference(), why.GetState())
			return
		}
		p.line("job %s waits for", why.GetReference())
		for _, w := range why.GetWaits() {
			p.paragraph(2, "%s", w)
		}
		if len(why.GetNodes()) == 0 {
			return
		}
		p.line("")
		p.head("NODE", "ON ITS WAY SINCE")
		for _, n := range why.GetNodes() {
			p.row(n.GetName(), clock(n.GetSince().AsTime()))
		}
	})
}
