// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/api/convert"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/catalog"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/admission"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/rounded"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/safeopen"
)

// builtKernels are registered from the current folder where none is named.
const builtKernels = "build/kernels"

func (a *app) profileApplyCommand() *cobra.Command {
	var kernels string
	var only []string
	var dryRun, keepDefault, built bool
	var s signature
	var reason string
	c := a.command("apply DIR", "Register the profiles of a folder with their kernels", cobra.ExactArgs(1), func(ctx context.Context, args []string) error {
		if err := s.open(ctx, a); err != nil {
			return err
		}
		if kernels == "" {
			own, err := safeopen.OwnTree(builtKernels)
			if err != nil {
				return fmt.Errorf("folder of built kernels: %w; --kernels names another, or takes this one", err)
			}
			a.say("built kernels: %s", own)
			kernels = own
		}
		all, err := a.prepare(args[0], kernels, only, built)
		if err != nil {
			return err
		}
		return a.profileApply(ctx, all, &s, reason, dryRun, keepDefault)
	})
	c.Flags().StringVar(&kernels, "kernels", "", "`folder` of built kernels (default ./"+builtKernels+", if only the caller and root can write it)")
	c.Flags().StringSliceVar(&only, "profile", nil, "only these `names`")
	c.Flags().BoolVar(&built, "built", false, "leave out profiles whose kernels are not in the folder of built kernels")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "only show the changes")
	c.Flags().BoolVar(&keepDefault, "keep-default", false, "change a default version only to a new version")
	c.Flags().StringVar(&reason, "reason", "", "`text` for the record")
	s.flags(c)
	a.siteFlag(c)
	return c
}

// prepared is a profile that is ready to be sent.
type prepared struct {
	profile *api.Profile
	files   []catalog.Artifact
}

func (p prepared) path(digest string) string {
	for _, file := range p.files {
		if file.Digest == digest {
			return file.Path
		}
	}
	return ""
}

func (a *app) profileApply(ctx context.Context, all []prepared, s *signature, reason string, dryRun, keepDefault bool) error {
	if keepDefault {
		for _, one := range all {
			if err := a.keepDefault(ctx, one.profile); err != nil {
				return err
			}
		}
	}
	for _, one := range all {
		if err := a.signAll(ctx, one, s); err != nil {
			return err
		}
	}
	work := func(ctx context.Context, one prepared) error { return a.apply(ctx, one, reason) }
	if dryRun {
		work = a.applyPreview
	}
	for _, one := range all {
		if err := work(ctx, one); err != nil {
			return err
		}
	}
	return nil
}

// keepDefault has a profile keep the default version that the broker has for it, so that a promotion, a rollback or an
// update of stock is not undone by an older file. A version that is not registered yet becomes the default as the file says.
func (a *app) keepDefault(ctx context.Context, profile *api.Profile) error {
	now, err := a.profileIfAny(ctx, profile.GetName())
	if err != nil || convert.FindVersion(now, profile.GetDefaultVersion()) == nil {
		return err
	}
	if now.GetDefaultVersion() != profile.GetDefaultVersion() {
		a.say("profile %s keeps its default version %d, its file has %d", profile.GetName(), now.GetDefaultVersion(), profile.GetDefaultVersion())
	}
	profile.DefaultVersion = 0
	return nil
}

// signAll signs the versions of a profile.
func (a *app) signAll(ctx context.Context, one prepared, s *signature) error {
	profile := one.profile
	var now *api.Profile
	var err error
	if len(s.opened) > 0 {
		// For the floors of the registered versions.
		if now, err = a.profileIfAny(ctx, profile.GetName()); err != nil {
			return err
		}
	}
	for _, v := range profile.GetVersions() {
		if err := a.signChecked(ctx, now, v, one.path(v.GetKernel().GetImageDigest()), "", s); err != nil {
			return err
		}
	}
	return nil
}

// signChecked signs a version of a profile that the site's policy makes available to jobs.
func (a *app) signChecked(ctx context.Context, profile *api.Profile, v *api.ProfileVersion, image, config string, s *signature) (err error) {
	k := v.GetKernel()
	if err := a.allowed(refOfSpec(k), k.GetArguments()); err != nil {
		return err
	}
	inside, err := admission.ConfigOf(ctx, image, cmp.Or(config, filepath.Join(filepath.Dir(image), build.ConfigFile)))
	if err != nil {
		return fmt.Errorf("kernel %q: %w", refOfSpec(k), err)
	}
	if err := a.honoured(k, inside); err != nil {
		return err
	}
	v.NoBtf = inside != nil && !inside.On("DEBUG_INFO_BTF")
	v.Envelope, err = s.sign(ctx, a, profile, k)
	return err
}

// prepare reads everything before anything is sent.
func (a *app) prepare(dir, kernels string, only []string, built bool) ([]prepared, error) {
	if info, err := os.Stat(filepath.Join(dir, "profiles")); err == nil && info.IsDir() {
		dir = filepath.Join(dir, "profiles")
	}
	definitions, err := catalog.Load(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range only {
		if !slices.ContainsFunc(definitions, func(d catalog.ProfileDefinition) bool { return d.Name == name }) {
			return nil, fmt.Errorf("%s has no profile %s: %w", dir, name, kb.ErrNotFound)
		}
	}
	var all []prepared
	var unbuilt []string
	for _, d := range definitions {
		if len(only) > 0 && !slices.Contains(only, d.Name) {
			continue
		}
		if built && !d.Built(kernels) {
			unbuilt = append(unbuilt, d.Name)
			continue
		}
		profile, files, err := catalog.Resolve(d, kernels)
		if err != nil {
			return nil, err
		}
		one := prepared{profile: convert.ProfileToProto(profile), files: files}
		if err := one.measure(); err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	if len(unbuilt) > 0 {
		a.say("left out, since %s has no kernels of them: %s", kernels, strings.Join(unbuilt, ", "))
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: profiles not found: %w", dir, kb.ErrNotFound)
	}
	return all, nil
}

// measure reads the reports that lie beside the kernels.
func (p prepared) measure() error {
	for _, v := range p.profile.GetVersions() {
		for _, d := range v.GetDocuments() {
			if d.GetName() != documentReport {
				continue
			}
			path, manifest := p.path(d.GetDigest()), ""
			if i := slices.IndexFunc(v.GetDocuments(), func(d *api.Document) bool { return d.GetName() == documentProvenance }); i >= 0 {
				manifest = p.path(v.GetDocuments()[i].GetDigest())
			}
			m, err := readMeasurement(path, path, v.GetKernel().GetImageDigest(), manifest)
			if err != nil {
				return fmt.Errorf("kernel %q: %w", refOf(v), err)
			}
			v.Measured = convert.MeasurementToProto(m)
		}
	}
	return nil
}

func (a *app) apply(ctx context.Context, one prepared, reason string) error {
	for _, file := range one.files {
		if err := a.upload(ctx, file); err != nil {
			return err
		}
	}
	now, err := a.send(ctx, one.profile, reason, func(*api.Profile) int { return len(one.profile.GetVersions()) })
	for _, v := range one.profile.GetVersions() {
		if is := convert.FindVersion(now, v.GetKernel().GetVersion()); is != nil {
			a.sayMeasured(refOf(is), measuredOf(is))
		}
	}
	return err
}

// send applies a profile, says what became of it and returns it; versions counts those that it is about. It is repeated, with the same
// id, when the answer got lost.
func (a *app) send(ctx context.Context, profile *api.Profile, reason string, versions func(*api.Profile) int) (*api.Profile, error) {
	request := &api.ApplyProfileRequest{RequestId: requestID(), Profile: profile, Reason: reason}
	response, err := call(ctx, a, api.NewCatalogServiceClient, api.CatalogServiceClient.ApplyProfile, request)
	if status.Code(err) == codes.Unavailable {
		response, err = call(ctx, a, api.NewCatalogServiceClient, api.CatalogServiceClient.ApplyProfile, request)
	}
	if err != nil {
		return nil, err
	}
	a.say("profile %s %s, %s", profile.GetName(), either(response.GetChanged(), "applied", "unchanged"), count(versions(response.GetProfile()), "version"))
	return response.GetProfile(), nil
}

func (a *app) applyPreview(ctx context.Context, one prepared) error {
	now, err := a.profileIfAny(ctx, one.profile.GetName())
	if err != nil {
		return err
	}
	if err := a.rehearse(ctx, one.profile); err != nil {
		return err
	}
	if now == nil {
		a.say("would create profile %s with %s", one.profile.GetName(), count(len(one.profile.GetVersions()), "version"))
	}
	for _, v := range one.profile.GetVersions() {
		a.previewVersion(now, v)
	}
	if now != nil && !sameSettings(now, one.profile) {
		a.say("would change the settings of profile %s", one.profile.GetName())
	}
	for _, file := range one.files {
		has, err := a.stored(ctx, file.Digest)
		if err != nil {
			return err
		}
		if !has {
			a.say("would upload %s (%s)", file.Path, rounded.Size(file.Size))
		}
	}
	return nil
}

// rehearse has the broker check a profile as it does when it is sent.
func (a *app) rehearse(ctx context.Context, profile *api.Profile) error {
	_, err := call(ctx, a, api.NewCatalogServiceClient, api.CatalogServiceClient.ApplyProfile, &api.ApplyProfileRequest{Profile: profile, DryRun: true})
	return err
}

func (a *app) previewVersion(now *api.Profile, v *api.ProfileVersion) {
	if old := convert.FindVersion(now, v.GetKernel().GetVersion()); old != nil {
		if old.GetMeasured() == nil && v.GetMeasured() != nil {
			a.say("would add to %s what was measured", refOf(v))
			a.sayMeasured(refOf(v), measuredOf(v))
		}
		return
	}
	a.say("would register %s (%s)", refOf(v), v.GetKernel().GetRelease())
	a.sayMeasured(refOf(v), measuredOf(v))
}

// sameSettings compares everything but the versions. A wanted profile without a default version keeps the one it has.
func sameSettings(now, wanted *api.Profile) bool {
	x, y := proto.CloneOf(now), proto.CloneOf(wanted)
	if y.GetDefaultVersion() == 0 {
		y.DefaultVersion = x.GetDefaultVersion()
	}
	x.Versions, y.Versions = nil, nil
	x.History, y.History = nil, nil
	return proto.Equal(x, y)
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// isMissing reports whether the broker answered "not found".
func isMissing(err error) bool {
	return status.Code(err) == codes.NotFound || errors.Is(err, kb.ErrNotFound)
}
