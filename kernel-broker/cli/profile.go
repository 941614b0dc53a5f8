// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/api/convert"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/rounded"
)

func (a *app) profileCommand() *cobra.Command {
	list := a.command("list", "List the profiles", cobra.NoArgs, a.profileList)
	show := a.command("show NAME", "Show a profile and its versions", cobra.ExactArgs(1), a.profileShow)
	profiling := false
	check := a.command("check NAME[@VERSION]", "Check whether a job may request a profile now", cobra.ExactArgs(1), func(ctx context.Context, args []string) error {
		return a.profileCheck(ctx, args[0], profiling)
	})
	check.Flags().BoolVar(&profiling, "profiling", false, "and whether its kernel can be profiled")
	return noun("profile", "Profiles that jobs can request", append([]*cobra.Command{list, show, check, a.profileApplyCommand()}, a.lifecycleCommands()...)...)
}

func (a *app) profiles(ctx context.Context) ([]*api.Profile, error) {
	response, err := call(ctx, a, api.NewCatalogServiceClient, api.CatalogServiceClient.ListProfiles, &api.ListProfilesRequest{})
	return response.GetProfiles(), err
}

func (a *app) profile(ctx context.Context, name string) (*api.Profile, error) {
	response, err := call(ctx, a, api.NewCatalogServiceClient, api.CatalogServiceClient.GetProfile, &api.GetProfileRequest{Name: name})
	return response.GetProfile(), err
}

// profileIfAny is nil for a profile that is not there.
func (a *app) profileIfAny(ctx context.Context, name string) (*api.Profile, error) {
	p, err := a.profile(ctx, name)
	if isMissing(err) {
		return nil, nil
	}
	return p, err
}

func (a *app) profileList(ctx context.Context, _ []string) error {
	profiles, err := a.profiles(ctx)
	if err != nil {
		return err
	}
	return showList(a, "profiles", profiles, a.orNone(len(profiles), "no profiles", func(p *page) {
		p.head("NAME", "DEFAULT", "VERSIONS", "STATE", "GAIN", "OF THE WHOLE", wide+"APPLICATION", below+"DESCRIPTION")
		for _, profile := range profiles {
			var versions []string
			for _, v := range profile.GetVersions() {
				versions = append(versions, fmt.Sprint(v.GetKernel().GetVersion()))
			}
			gain, whole := versionGain(convert.FindVersion(profile, profile.GetDefaultVersion()))
			p.row(profile.GetName(), profile.GetDefaultVersion(), strings.Join(versions, ","), profileState(profile), p.figure(gain), p.figure(whole),
				profile.GetApplication(), profile.GetDescription())
		}
	}))
}

// versionGain is empty for stock, against which others are measured.
func versionGain(v *api.ProfileVersion) (kernel, whole string) {
	if v.GetMeasured() == nil && v.GetKernel().GetProfile() == kb.StockProfile {
		return "", ""
	}
	return gainCells(measuredOf(v))
}

// profileState summarises the states of the versions.
func profileState(profile *api.Profile) string {
	count := map[string]int{}
	for _, v := range profile.GetVersions() {
		count[convert.VersionState(v)]++
	}
	var parts []string
	for _, state := range []string{convert.VersionQuarantined, convert.VersionRetired} {
		switch n := count[state]; n {
		case 0:
		case len(profile.GetVersions()):
			return state
		default:
			parts = append(parts, fmt.Sprintf("%d of %d %s", n, len(profile.GetVersions()), state))
		}
	}
	if parts == nil {
		return convert.VersionAvailable
	}
	return strings.Join(parts, ", ")
}

func (a *app) profileShow(ctx context.Context, args []string) error {
	profile, err := a.profile(ctx, args[0])
	if err != nil {
		return err
	}
	return a.show(profile, func(p *page) {
		p.row("Name:", profile.GetName())
		p.row("Application:", profile.GetApplication())
		p.row("Description:", profile.GetDescription())
		p.row("Default version:", profile.GetDefaultVersion())
		p.row("Reuse:", convert.Word(profile.GetReuse()))
		p.row("Fallback:", convert.Word(profile.GetFallback()))
		p.row("Boot attempts:", profile.GetBootAttempts())
		p.row("Boot timeout:", time.Duration(profile.GetBootTimeoutMs())*time.Millisecond)
		p.line("")
		versionRows(p, profile.GetVersions())
		argumentRows(p, profile.GetVersions())
		coreRows(p, profile.GetVersions())
		for _, v := range profile.GetVersions() {
			measuredPart(p, v)
		}
		for _, v := range profile.GetVersions() {
			if q := v.GetQuarantine(); q != nil {
				p.line("\n%s is quarantined since %s:", refOf(v), clock(q.GetSince().AsTime()))
				p.paragraph(2, "%s", q.GetReason())
			}
			if r := v.GetRetired(); r != nil {
				p.line("\n%s is retired since %s:", refOf(v), clock(r.GetSince().AsTime()))
				p.paragraph(2, "%s", cmp.Or(r.GetReason(), "no reason recorded"))
			}
		}
		historyRows(p, profile.GetHistory())
	})
}

func versionRows(p *page, versions []*api.ProfileVersion) {
	p.head("KERNEL", "STATE", "GAIN", "FAILED BOOTS", "RELEASE", wide+"BUILD ID", wide+"SIZE", wide+"ARGUMENTS", zoned("REGISTERED", newest(versions, func(v *api.ProfileVersion) time.Time { return v.GetRegisteredAt().AsTime() })))
	for _, v := range versions {
		k := v.GetKernel()
		gain, _ := versionGain(v)
		p.row(refOf(v), convert.VersionState(v), p.figure(gain), numberOrNone(v.GetBootFailures()), k.GetRelease(), short(k.GetBuildId()),
			rounded.Size(k.GetImageSize()+k.GetInitrdSize()+k.GetModulesSize()), strings.Join(k.GetArguments(), " "), minute(v.GetRegisteredAt().AsTime()))
	}
}

// argumentRows shows the arguments by which versions of one kernel differ.
func argumentRows(p *page, versions []*api.ProfileVersion) {
	versions = slices.DeleteFunc(slices.Clone(versions), func(v *api.ProfileVersion) bool { return len(v.GetKernel().GetArguments()) == 0 })
	if len(versions) == 0 {
		return
	}
	p.line("")
	p.head("KERNEL", "ARGUMENTS")
	for _, v := range versions {
		p.row(refOf(v), strings.Join(v.GetKernel().GetArguments(), " "))
	}
}

// coreRows shows how the versions divide the cores of a node.
func coreRows(p *page, versions []*api.ProfileVersion) {
	versions = slices.DeleteFunc(slices.Clone(versions), func(v *api.ProfileVersion) bool { return v.GetKernel().GetSystemCores() == 0 })
	if len(versions) == 0 {
		return
	}
	p.line("\nCores of each node:")
	p.head("KERNEL", "SYSTEM", "APPLICATION")
	for _, v := range versions {
		p.row(refOf(v), v.GetKernel().GetSystemCores(), "the others")
	}
}

func (a *app) profileCheck(ctx context.Context, name string, profiling bool) error {
	response, err := call(ctx, a, api.NewCatalogServiceClient, api.CatalogServiceClient.CheckProfile, &api.CheckProfileRequest{Profile: name, Profiling: profiling})
	if err != nil {
		return err
	}
	if response.GetProviso() != "" {
		a.say("for a job %s", response.GetProviso())
	}
	return a.show(response, func(p *page) {
		p.line("%s", kb.Ref{Profile: response.GetName(), Version: response.GetVersion()})
	})
}

// lifecycleCommands change which versions jobs may choose.
func (a *app) lifecycleCommands() []*cobra.Command {
	return []*cobra.Command{
		a.rehearsed(a.lifecycleCommand("promote NAME@VERSION", "Make a version the default", versionRef, a.promote, nil), a.promotePreview),
		a.lifecycleCommand("rollback NAME", "Restore the previous default version", bareRef, a.promote, nil),
		a.rehearsed(a.lifecycleCommand("quarantine NAME@VERSION", "Keep jobs from choosing a version until it is released", versionRef, a.quarantine, nil), a.quarantinePreview),
		a.lifecycleCommand("release NAME@VERSION", "End the quarantine of a version", versionRef, a.release, a.releasePreview),
		a.careful(a.lifecycleCommand("retire NAME[@VERSION]", "Take a profile, or one version of it, out of use", kb.ParseRef, a.retire, a.retirePreview),
			func(ctx context.Context, args []string) error {
				ref, err := kb.ParseRef(args[0])
				if err != nil {
					return usageError{err}
				}
				now, err := a.profile(ctx, ref.Profile)
				if err != nil {
					return err
				}
				return a.retirePreview(ctx, now, ref, "")
			}),
	}
}

// lifecycleCommand with a preview has --dry-run; any other requires a reason, which others will need.
func (a *app) lifecycleCommand(use, short string, parse func(string) (kb.Ref, error),
	change func(ctx context.Context, ref kb.Ref, reason string) error, preview func(ctx context.Context, now *api.Profile, ref kb.Ref, reason string) error) *cobra.Command {
	var reason string
	var dryRun bool
	c := a.command(use, short, cobra.ExactArgs(1), func(ctx context.Context, args []string) error {
		ref, err := parse(args[0])
		if err != nil {
			return usageError{err}
		}
		if !dryRun {
			return change(ctx, ref, reason)
		}
		profile, err := a.profile(ctx, ref.Profile)
		if err != nil {
			return err
		}
		return preview(ctx, profile, ref, reason)
	})
	c.Flags().StringVar(&reason, "reason", "", "`text` for the record, and for users whose jobs are held")
	if preview == nil {
		_ = c.MarkFlagRequired("reason") // defined above
	} else {
		c.Flags().BoolVar(&dryRun, "dry-run", false, "only show the changes")
	}
	return c
}

func bareRef(name string) (kb.Ref, error) { return kb.Ref{Profile: name}, kb.ValidateProfileName(name) }

func (a *app) promote(ctx context.Context, ref kb.Ref, reason string) error {
	response, err := call(ctx, a, api.NewCatalogServiceClient, api.CatalogServiceClient.PromoteVersion,
		&api.PromoteVersionRequest{RequestId: requestID(), Name: ref.Profile, Version: ref.Version, Reason: reason})
	ref.Version = response.GetProfile().GetDefaultVersion()
	return a.changed(err, response.GetChanged(), "%s is the default version now", "%s was the default version already", ref)
}

func (a *app) quarantine(ctx context.Context, ref kb.Ref, reason string) error {
	response, err := call(ctx, a, api.NewCatalogServiceClient, api.CatalogServiceClient.QuarantineVersion,
		&api.QuarantineVersionRequest{RequestId: requestID(), Name: ref.Profile, Version: ref.Version, Reason: reason})
	return a.changed(err, response.GetChanged(), "%s quarantined", "%s was quarantined already", ref)
}

func (a *app) retire(ctx context.Context, ref kb.Ref, reason string) error {
	response, err := call(ctx, a, api.NewCatalogServiceClient, api.CatalogServiceClient.RetireProfile,
		&api.RetireProfileRequest{RequestId: requestID(), Name: ref.Profile, Version: ref.Version, Reason: reason})
	return a.changed(err, response.GetChanged(), "%s retired", "%s was retired already", ref)
}

func (a *app) release(ctx context.Context, ref kb.Ref, reason string) error {
	_, err := call(ctx, a, api.NewCatalogServiceClient, api.CatalogServiceClient.ReleaseQuarantine,
		&api.ReleaseQuarantineRequest{RequestId: requestID(), Name: ref.Profile, Version: ref.Version, Reason: reason})
	return a.changed(err, true, "%s released from quarantine", "", ref)
}

// changed says what became of a version.
func (a *app) changed(err error, changed bool, done, before string, ref kb.Ref) error {
	switch {
	case err != nil:
	case changed:
		a.say(done, ref)
	default:
		a.say(before, ref)
	}
	return err
}

// releasePreview and retirePreview have the broker check the change, and say what it would alter.
func (a *app) releasePreview(ctx context.Context, now *api.Profile, ref kb.Ref, reason string) error {
	_, err := call(ctx, a, api.NewCatalogServiceClient, api.CatalogServiceClient.ReleaseQuarantine,
		&api.ReleaseQuarantineRequest{Name: ref.Profile, Version: ref.Version, Reason: reason, DryRun: true})
	if err != nil {
		return err
	}
	q := convert.FindVersion(now, ref.Version).GetQuarantine()
	a.say("would release %s, quarantined since %s: %s", ref, clock(q.GetSince().AsTime()), q.GetReason())
	return nil
}

func (a *app) retirePreview(ctx context.Context, now *api.Profile, ref kb.Ref, reason string) error {
	response, err := call(ctx, a, api.NewCatalogServiceClient, api.CatalogServiceClient.RetireProfile,
		&api.RetireProfileRequest{Name: ref.Profile, Version: ref.Version, Reason: reason, DryRun: true})
	if err != nil {
		return err
	}
	if !response.GetChanged() {
		a.say("%s was retired already", ref)
	}
	for _, v := range response.GetProfile().GetVersions() {
		if v.GetRetired() != nil && convert.FindVersion(now, v.GetKernel().GetVersion()).GetRetired() == nil {
			a.say("would retire %s (%s)", refOf(v), v.GetKernel().GetRelease())
		}
	}
	return nil
}

// historyRows shows the changes of a profile: author, kind, time and reason.
func historyRows(p *page, history []*api.Change) {
	if len(history) == 0 {
		return
	}
	p.line("\nHistory:")
	p.head(zoned("TIME", history[len(history)-1].GetAt().AsTime()), "CHANGE", "VERSION", "BY", "REASON")
	for _, c := range history {
		p.row(minute(c.GetAt().AsTime()), c.GetWhat(), numberOrNone(c.GetVersion()), c.GetWho(), c.GetReason())
	}
}
