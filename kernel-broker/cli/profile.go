// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/api/convert"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

func (a *app) profileCommand() *cobra.Command {
	list := &cobra.Command{Use: "list", Short: "List the profiles", Args: cobra.NoArgs, RunE: a.run(a.profileList)}
	show := &cobra.Command{Use: "show NAME", Short: "Show a profile and its versions", Args: cobra.ExactArgs(1), RunE: a.run(a.profileShow)}
	check := &cobra.Command{Use: "check NAME[@VERSION]", Short: "Check whether a job may request a profile now",
		Args: cobra.ExactArgs(1), RunE: a.run(a.profileCheck)}
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
		p.row("NAME", "DEFAULT", "VERSIONS", "STATE", "APPLICATION", "DESCRIPTION")
		for _, profile := range profiles {
			var versions []string
			for _, v := range profile.GetVersions() {
				versions = append(versions, fmt.Sprint(v.GetKernel().GetVersion()))
			}
			p.row(profile.GetName(), profile.GetDefaultVersion(), strings.Join(versions, ","), profileState(profile),
				profile.GetApplication(), profile.GetDescription())
		}
	}))
}

// profileState summarises the states of the versions.
func profileState(profile *api.Profile) string {
	count := map[string]int{}
	for _, v := range profile.GetVersions() {
		count[versionState(v)]++
	}
	var parts []string
	for _, state := range []string{stateQuarantined, stateRetired} {
		switch n := count[state]; n {
		case 0:
		case len(profile.GetVersions()):
			return state
		default:
			parts = append(parts, fmt.Sprintf("%d of %d %s", n, len(profile.GetVersions()), state))
		}
	}
	if parts == nil {
		return stateAvailable
	}
	return strings.Join(parts, ", ")
}

// States of a version.
const (
	stateAvailable   = "available"
	stateQuarantined = "quarantined"
	stateRetired     = "retired"
)

func versionState(v *api.ProfileVersion) string {
	switch {
	case v.GetRetired() != nil:
		return stateRetired
	case v.GetQuarantine() != nil:
		return stateQuarantined
	}
	return stateAvailable
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
		for _, v := range profile.GetVersions() {
			if q := v.GetQuarantine(); q != nil {
				p.line("\n%s is quarantined since %s:\n  %s", refOf(v), clock(q.GetSince().AsTime()), q.GetReason())
			}
			if r := v.GetRetired(); r != nil {
				p.line("\n%s is retired since %s:\n  %s", refOf(v), clock(r.GetSince().AsTime()), cmp.Or(r.GetReason(), "no reason recorded"))
			}
		}
		historyRows(p, profile.GetHistory())
	})
}

func versionRows(p *page, versions []*api.ProfileVersion) {
	p.row("KERNEL", "STATE", "FAILED BOOTS", "RELEASE", "BUILD ID", "SIZE", "ARGUMENTS", "REGISTERED")
	for _, v := range versions {
		k := v.GetKernel()
		p.row(refOf(v), versionState(v), v.GetBootFailures(), k.GetRelease(), short(k.GetBuildId()),
			bytesOf(k.GetImageSize()+k.GetInitrdSize()), strings.Join(k.GetArguments(), " "), clock(v.GetRegisteredAt().AsTime()))
	}
}

func (a *app) profileCheck(ctx context.Context, args []string) error {
	response, err := call(ctx, a, api.NewCatalogServiceClient, api.CatalogServiceClient.CheckProfile, &api.CheckProfileRequest{Profile: args[0]})
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
