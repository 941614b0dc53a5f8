// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/api/convert"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

// errKept ends a command that somebody answered no to.
var errKept = errors.New("nothing was changed")

// preview says what a command would do, and fails where it would.
type preview func(ctx context.Context, args []string) error

// rehearsed gives a command --dry-run, unless it has it.
func (a *app) rehearsed(c *cobra.Command, say preview) *cobra.Command {
	if c.Flags().Lookup(dryRunFlag) != nil {
		return c
	}
	dryRun := c.Flags().Bool(dryRunFlag, false, "only show the changes")
	work := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if *dryRun {
			return a.run(say)(c, args)
		}
		return work(c, args)
	}
	return c
}

const dryRunFlag = "dry-run"

// careful is for a command whose effect cannot be taken back: on a terminal it says what it would do and asks first.
// Scripts are not asked.
func (a *app) careful(c *cobra.Command, say preview) *cobra.Command {
	yes := c.Flags().BoolP("yes", "y", false, "do not ask on a terminal")
	work := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		dryRun, err := c.Flags().GetBool(dryRunFlag)
		if err != nil || *yes || dryRun || a.Confirm == nil || !a.isTable() {
			return errors.Join(err, work(c, args))
		}
		if err := a.run(say)(c, args); err != nil {
			return err
		}
		if !a.Confirm(c.Context(), "Go on? [y/N] ") {
			return errKept
		}
		return work(c, args)
	}
	return a.rehearsed(c, say)
}

// versionNamed is the version that an argument names, with its profile.
func (a *app) versionNamed(ctx context.Context, text string) (ref kb.Ref, profile *api.Profile, v *api.ProfileVersion, err error) {
	if ref, err = versionRef(text); err != nil {
		return ref, nil, nil, err
	}
	if profile, err = a.profile(ctx, ref.Profile); err != nil {
		return ref, nil, nil, err
	}
	if v = convert.FindVersion(profile, ref.Version); v == nil {
		return ref, nil, nil, fmt.Errorf("kernel profile %q has no version %d: %w", ref.Profile, ref.Version, kb.ErrNotFound)
	}
	return ref, profile, v, nil
}

func (a *app) promotePreview(ctx context.Context, args []string) error {
	ref, profile, v, err := a.versionNamed(ctx, args[0])
	switch state := convert.VersionState(v); {
	case err != nil:
		return err
	case state != convert.VersionAvailable:
		return fmt.Errorf("%s is %s: %w", ref, state, kb.ErrFailedPrecondition)
	case profile.GetDefaultVersion() == ref.Version:
		a.say("%s is the default version already", ref)
	default:
		a.say("would make %s the default version in place of %s", ref, kernelRef(ref.Profile, profile.GetDefaultVersion()))
	}
	return nil
}

func (a *app) quarantinePreview(ctx context.Context, args []string) error {
	ref, _, v, err := a.versionNamed(ctx, args[0])
	switch {
	case err != nil:
		return err
	case v.GetQuarantine() != nil:
		a.say("%s was quarantined already", ref)
	default:
		a.say("would quarantine %s: jobs that wait for it are held, jobs that run on it continue", ref)
	}
	return nil
}

func (a *app) revokePreview(ctx context.Context, args []string) error {
	if err := kb.ValidateNodeName(args[0]); err != nil {
		return usageError{err}
	}
	response, err := call(ctx, a, api.NewTrustServiceClient, api.TrustServiceClient.ListCertificates, &api.ListCertificatesRequest{Node: args[0]})
	if err != nil {
		return err
	}
	good, tokens := 0, 0
	for _, n := range response.GetNodes() {
		for _, certificate := range n.GetCertificates() {
			if !certificate.GetRevoked() {
				good++
			}
		}
		if n.GetTokenExpires() != nil {
			tokens++
		}
	}
	a.say("would revoke %s: %s and %s become void, its connections are cut, its jobs continue", args[0], count(good, "certificate"), count(tokens, "token"))
	return nil
}

func (a *app) rotatePreview(ctx context.Context, _ []string) error {
	response, err := call(ctx, a, api.NewTrustServiceClient, api.TrustServiceClient.GetAuthority, &api.GetAuthorityRequest{})
	if err != nil {
		return err
	}
	a.say("would replace the key of cluster %s with the fingerprint %s; login nodes without kernel-broker-client.timer need ca.pem again before tls.lifetime is over",
		response.GetCluster(), response.GetFingerprint())
	return nil
}

func (a *app) cancelPreview(ctx context.Context, args []string) error {
	r, err := a.runNamed(ctx, args[0])
	if err != nil {
		return err
	}
	if r.GetState() != api.RunState_RUN_STATE_REQUESTED {
		return fmt.Errorf("run %d is %s: only a request that waits for its job can be cancelled: %w", r.GetId(), runState(r), kb.ErrFailedPrecondition)
	}
	a.say("would cancel run %d, which waits for the %s", r.GetId(), runJob(r))
	return nil
}

func (a *app) removePreview(ctx context.Context, args []string) error {
	response, err := a.hardware(ctx)
	if err != nil {
		return err
	}
	for _, r := range response.GetRules() {
		if r.GetName() == args[0] {
			a.say("would remove rule %s, for %s", r.GetName(), ruleScope(r))
			return nil
		}
	}
	return fmt.Errorf("rule %q: %w", args[0], kb.ErrNotFound)
}
