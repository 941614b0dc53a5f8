// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/api/client"
	"github.com/kernelbroker/kernelbroker/kernel-broker/api/convert"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/cli/qualify"
)

func (a *app) nodeQualifyCommand() *cobra.Command {
	o := qualify.Options{}
	c := a.command("qualify NODE", "Boot a node into a kernel and back, and measure each phase", cobra.ExactArgs(1), func(ctx context.Context, args []string) error {
		o.Node = args[0]
		return a.nodeQualify(ctx, o)
	})
	c.Flags().IntVar(&o.Rounds, "rounds", 10, "number of rounds")
	c.Flags().StringVar(&o.Kernel, "kernel-profile", "", "`profile` to boot, or one version of it as NAME@VERSION (default: the first that jobs can request)")
	c.Flags().DurationVar(&o.RoundLimit, "round-limit", 30*time.Minute, "longest time of one round")
	return c
}

func (a *app) nodeQualify(ctx context.Context, o qualify.Options) error {
	if err := kb.ValidateNodeName(o.Node); err != nil {
		return usageError{err}
	}
	if o.Rounds < 1 || o.Rounds > 1000 || o.RoundLimit < time.Second {
		return usageError{fmt.Errorf("--rounds must be 1 to 1000 and --round-limit at least 1s")}
	}
	settings, err := client.LoadConfig(a.config)
	if err != nil {
		return err
	}
	node, err := call(ctx, a, api.NewNodeServiceClient, api.NodeServiceClient.GetNode, &api.GetNodeRequest{Name: o.Node})
	if err != nil {
		return err
	}
	if !node.GetNode().GetConnected() {
		return fmt.Errorf("node %q: its agent is away: %w", o.Node, kb.ErrFailedPrecondition)
	}
	if o.Kernel == "" {
		if o.Kernel, err = a.anyProfile(ctx); err != nil {
			return err
		}
	}
	a.say("%s boots %s and back, %d times; it is reserved meanwhile", o.Node, o.Kernel, o.Rounds)
	o.Scontrol, o.SlurmConf = settings.Scontrol, settings.SlurmConf
	o.Job = func(ctx context.Context, id uint32) (*api.Job, error) {
		return a.job(ctx, &api.GetJobRequest{JobId: id})
	}
	o.Done, o.Warn = a.roundsDone(o.Rounds), func(text string) { a.say("%s", text) }
	result, failed := qualify.Run(ctx, o)
	if len(result.Rounds) > 0 {
		if err := a.showValue(result, func(p *page) {
			p.head("WAY", "PHASE", "ROUNDS", "MEDIAN", "P95", "MOST")
			for _, s := range result.Phases {
				p.row(s.Way, s.Phase, s.Count, secondsOf(s.Median), secondsOf(s.P95), secondsOf(s.Most))
			}
		}); err != nil {
			return err
		}
	}
	return failed
}

func secondsOf(s float64) string { return fmt.Sprintf("%.2f s", s) }

// anyProfile is the first profile that jobs can request.
func (a *app) anyProfile(ctx context.Context) (string, error) {
	profiles, err := a.profiles(ctx)
	if err != nil {
		return "", err
	}
	for _, p := range profiles {
		if p.GetName() != kb.StockProfile && profileState(p) == convert.VersionAvailable {
			return p.GetName(), nil
		}
	}
	return "", fmt.Errorf("no profile can be requested (kernelctl profile list): %w", kb.ErrFailedPrecondition)
}

// roundsDone shows rounds as a bar on a terminal, as lines elsewhere.
func (a *app) roundsDone(rounds int) func(int) {
	if !a.Terminal {
		return func(round int) { a.say("round %d of %d done", round, rounds) }
	}
	bar := progressbar.NewOptions(rounds, progressbar.OptionSetWriter(a.Stderr), progressbar.OptionSetDescription("rounds"),
		progressbar.OptionSetWidth(30), progressbar.OptionShowCount(), progressbar.OptionOnCompletion(func() { _, _ = io.WriteString(a.Stderr, "\n") }))
	_ = bar.RenderBlank() // a bar that cannot be drawn is no reason to stop
	return func(int) { _ = bar.Add(1) }
}
