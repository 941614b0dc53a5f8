// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

// reasonFlag adds --reason, required where others will need it.
func reasonFlag(c *cobra.Command, reason *string) *cobra.Command {
	c.Flags().StringVar(reason, "reason", "", "`text` for the record")
	_ = c.MarkFlagRequired("reason") // defined above
	return c
}

func (a *app) profilePromoteCommand() *cobra.Command {
	var reason string
	return reasonFlag(&cobra.Command{
		Use: "promote NAME@VERSION", Short: "Make a version the default",
		Example: "  kernelctl profile promote mitgcm@3 --reason 'a week on the test partition'",
		Args:    cobra.ExactArgs(1),
		RunE: a.run(func(ctx context.Context, args []string) error {
			ref, err := versionRef(args[0])
			if err != nil {
				return err
			}
			return a.promote(ctx, ref, reason)
		}),
	}, &reason)
}

func (a *app) profileRollbackCommand() *cobra.Command {
	var reason string
	return reasonFlag(&cobra.Command{
		Use: "rollback NAME", Short: "Restore the previous default version",
		Long: `Jobs that name no version get the previous default version again. Quarantined and
retired versions are skipped. A node that a signature's floor forbids to boot older
versions still refuses them.`,
		Example: "  kernelctl profile rollback mitgcm --reason 'mitgcm@3 is slower on n12'",
		Args:    cobra.ExactArgs(1),
		RunE: a.run(func(ctx context.Context, args []string) error {
			if err := kb.ValidateProfileName(args[0]); err != nil {
				return usageError{err}
			}
			return a.promote(ctx, kb.Ref{Profile: args[0]}, reason)
		}),
	}, &reason)
}

func (a *app) promote(ctx context.Context, ref kb.Ref, reason string) error {
	response, err := call(ctx, a, api.NewCatalogServiceClient, api.CatalogServiceClient.PromoteVersion,
		&api.PromoteVersionRequest{RequestId: requestID(), Name: ref.Profile, Version: ref.Version, Reason: reason})
	if err != nil {
		return err
	}
	now := kb.Ref{Profile: ref.Profile, Version: response.GetProfile().GetDefaultVersion()}
	if response.GetChanged() {
		a.say("%s is the default version now", now)
	} else {
		a.say("%s was the default version already", now)
	}
	return nil
}

func (a *app) profileQuarantineCommand() *cobra.Command {
	var reason string
	return reasonFlag(&cobra.Command{
		Use: "quarantine NAME@VERSION", Short: "Keep jobs from choosing a version until it is released",
		Long: `Jobs cannot choose the version until "profile release"; jobs that wait for it are
held with the reason. Jobs that run on it continue.`,
		Example: "  kernelctl profile quarantine mitgcm@3 --reason 'loses data on NFS'",
		Args:    cobra.ExactArgs(1),
		RunE:    a.run(func(ctx context.Context, args []string) error { return a.profileQuarantine(ctx, args[0], reason) }),
	}, &reason)
}

func (a *app) profileQuarantine(ctx context.Context, text, reason string) error {
	ref, err := versionRef(text)
	if err != nil {
		return err
	}
	response, err := call(ctx, a, api.NewCatalogServiceClient, api.CatalogServiceClient.QuarantineVersion,
		&api.QuarantineVersionRequest{RequestId: requestID(), Name: ref.Profile, Version: ref.Version, Reason: reason})
	if err != nil {
		return err
	}
	a.changed(response.GetChanged(), ref, "quarantined")
	return nil
}

// changed says what became of a version.
func (a *app) changed(changed bool, ref kb.Ref, word string) {
	if changed {
		a.say("%s %s", ref, word)
	} else {
		a.say("%s was %s already", ref, word)
	}
}

// historyRows shows the changes of a profile: author, kind, time and reason.
func historyRows(p *page, history []*api.Change) {
	if len(history) == 0 {
		return
	}
	p.line("\nHistory:")
	p.row("TIME", "CHANGE", "VERSION", "BY", "REASON")
	for _, c := range history {
		version := ""
		if c.GetVersion() != 0 {
			version = fmt.Sprint(c.GetVersion())
		}
		p.row(clock(c.GetAt().AsTime()), c.GetWhat(), version, c.GetWho(), c.GetReason())
	}
}
