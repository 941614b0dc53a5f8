// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

func (a *app) profileRetireCommand() *cobra.Command {
	var reason string
	var dryRun bool
	c := &cobra.Command{
		Use: "retire NAME[@VERSION]", Short: "Take a profile, or one version of it, out of use",
		Long: `Jobs can no longer choose a retired version, and jobs that wait for it are held
with the reason. Jobs that run on it continue, and its kernels stay stored for
them and for the record. Retirement is final: to use a kernel again, register it
as a new version. The default version can only be retired with the whole profile;
make another one the default first.`,
		Example: "  kernelctl profile retire mitgcm@2 --reason 'security fix in mitgcm@3'",
		Args:    cobra.ExactArgs(1),
		RunE:    a.run(func(ctx context.Context, args []string) error { return a.profileRetire(ctx, args[0], reason, dryRun) }),
	}
	c.Flags().StringVar(&reason, "reason", "", "`text` for users whose jobs are held")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "only show the changes")
	return c
}

func (a *app) profileRetire(ctx context.Context, text, reason string, dryRun bool) error {
	ref, err := kb.ParseRef(text)
	if err != nil {
		return usageError{err}
	}
	if dryRun {
		return a.retirePreview(ctx, ref)
	}
	response, err := call(ctx, a, api.NewCatalogServiceClient, api.CatalogServiceClient.RetireProfile,
		&api.RetireProfileRequest{RequestId: requestID(), Name: ref.Profile, Version: ref.Version, Reason: reason})
	if err != nil {
		return err
	}
	a.changed(response.GetChanged(), ref, "retired")
	return nil
}

func (a *app) retirePreview(ctx context.Context, ref kb.Ref) error {
	profile, err := a.profile(ctx, ref.Profile)
	if err != nil {
		return err
	}
	named, left := false, 0
	for _, v := range profile.GetVersions() {
		mine := ref.Version == 0 || ref.Version == v.GetKernel().GetVersion()
		named = named || mine
		switch {
		case mine && v.GetRetired() == nil:
			a.say("would retire %s (%s)", refOf(v), v.GetKernel().GetRelease())
		case !mine && v.GetRetired() == nil:
			left++
		}
	}
	if !named {
		return fmt.Errorf("kernel %q: %w", ref, kb.ErrNotFound)
	}
	if left > 0 && ref.Version == profile.GetDefaultVersion() {
		return fmt.Errorf("kernel %q is the default version and others exist: %w", ref, kb.ErrFailedPrecondition)
	}
	return nil
}
