// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/api/convert"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/catalog"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/site"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/rounded"
)

// registration holds the arguments of kernel register.
type registration struct {
	profile, kernel, manifest, initrd, modules string
	report                                     string
	application, description                   string
	version                                    uint32
	arguments                                  []string
	systemCores                                uint32
	makeDefault, dryRun, replaceStock          bool
	admitting                                  admitting
	signature                                  signature
	documents                                  map[string]string // besides the manifest: names and files
}

func (a *app) kernelCommand() *cobra.Command {
	list := a.command("list", "List the versions of all profiles", cobra.NoArgs, a.kernelList)
	show := a.command("show NAME[@VERSION]", "Show one version of a profile and where it is from", cobra.ExactArgs(1), a.kernelShow)
	return noun("kernel", "Kernels behind the profiles", list, show, a.kernelBisectCommand(), a.kernelBuildCommand(), a.kernelCandidatesCommand(), a.kernelHardwareCommand(), a.kernelRegisterCommand(), a.kernelSignCommand(), a.kernelTuneCommand())
}

func (a *app) kernelRegisterCommand() *cobra.Command {
	var r registration
	c := a.command("register --profile NAME --kernel bzImage", "Upload a kernel as a new version of a profile", cobra.NoArgs,
		func(ctx context.Context, _ []string) error { return a.register(ctx, r) })
	f := c.Flags()
	f.StringVar(&r.profile, "profile", "", "`name` of the profile")
	f.StringVar(&r.kernel, "kernel", "", "the bzImage `file`")
	f.StringVar(&r.manifest, "manifest", "", "the kernel.json `file` that describes it (default: read from the kernel)")
	f.StringVar(&r.report, "report", "", "the factory's `file` report.json about this kernel (default: the one beside the kernel, if there is one)")
	f.StringVar(&r.initrd, "initrd", "", "initrd `file`; without one the node uses its own")
	f.StringVar(&r.modules, "modules", "", "`file` modules.tar.zst, whose modules the node loads after the boot (default: the one that the manifest names)")
	f.StringArrayVar(&r.arguments, "argument", nil, "kernel `argument`; may be repeated")
	f.Uint32Var(&r.systemCores, "system-cores", 0, "`number` of cores of each node that are kept for the system")
	f.Uint32Var(&r.version, "version", 0, "version `number` (default: the next one)")
	f.BoolVar(&r.makeDefault, "default", false, "make it the default version")
	f.StringVar(&r.application, "application", "", "`application` of a new profile (default: its name)")
	f.StringVar(&r.description, "description", "", "`description` of a new profile")
	f.BoolVar(&r.dryRun, "dry-run", false, "only show the changes")
	f.BoolVar(&r.replaceStock, "replace-stock", false, "with --profile stock: confirm that all nodes return to this kernel")
	a.siteFlag(c)
	r.admitting.flags(c)
	r.signature.flags(c)
	for _, name := range []string{"profile", "kernel"} {
		_ = c.MarkFlagRequired(name) // defined above
	}
	return c
}

func (a *app) register(ctx context.Context, r registration) (err error) {
	if err := kb.ValidateProfileName(r.profile); err != nil {
		return usageError{err}
	}
	// Find mistakes and ask for secrets before anything slow starts.
	if err := kb.ValidateArguments(r.arguments); err != nil {
		return err
	}
	if r.systemCores > 0 {
		if err := kb.ValidateSystemCores(kb.Ref{Profile: r.profile, Version: r.version}, r.systemCores, r.arguments); err != nil {
			return err
		}
	}
	if _, err := site.Load(cmp.Or(a.site, site.DefaultPath)); err != nil {
		return err
	}
	if err := r.confirmStock(); err != nil {
		return err
	}
	if err := r.signature.open(ctx, a); err != nil {
		return err
	}
	// Contact the broker before the boot test; read the profile's current state after it.
	profile, err := a.profileIfAny(ctx, r.profile)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(profile.GetVersions(), func(v *api.ProfileVersion) bool { return slices.Equal(v.GetKernel().GetArguments(), r.arguments) }) {
		if err := a.allowed(kernelRef(r.profile, r.version), r.arguments); err != nil {
			return err
		}
	}
	cleanUp, err := a.admit(ctx, &r)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cleanUp()) }()
	ref, err := a.registerIn(ctx, r)
	if err != nil || ref == (kb.Ref{}) {
		return err
	}
	return a.showRef(ref)
}

// showRef prints the reference of a registered kernel.
func (a *app) showRef(ref kb.Ref) error {
	return a.show(&api.CheckProfileResponse{Name: ref.Profile, Version: ref.Version}, func(p *page) { p.line("%s", ref) })
}

// registerIn registers a kernel in its profile and returns its name, or an empty name in a dry run.
func (a *app) registerIn(ctx context.Context, r registration) (none kb.Ref, err error) {
	profile, err := a.profileIfAny(ctx, r.profile)
	if err != nil {
		return none, err
	}
	spec, files, err := r.read(profile)
	if err != nil {
		return none, err
	}
	for _, v := range profile.GetVersions() {
		if sameBoot(v.GetKernel(), spec) && (r.version == 0 || r.version == v.GetKernel().GetVersion()) {
			return kb.Ref{Profile: r.profile, Version: v.GetKernel().GetVersion()}, a.registerAgain(ctx, profile, v, r)
		}
	}
	if err := a.noteMissingDrivers(ctx, spec); err != nil {
		return none, err
	}
	documents, more, err := r.describe()
	if err != nil {
		return none, err
	}
	measured, err := r.measured(spec.GetImageDigest())
	if err != nil {
		return none, err
	}
	v := &api.ProfileVersion{Kernel: spec, Documents: documents, Measured: measured}
	if err := a.signChecked(ctx, profile, v, r.kernel, r.admitting.config, &r.signature); err != nil {
		return none, err
	}
	if r.dryRun {
		if err := a.rehearse(ctx, withVersion(profile, r, v)); err != nil {
			return none, err
		}
		a.say("would register %s (%s)", refOf(v), spec.GetRelease())
		a.sayMeasured(refOf(v), measuredOf(v))
		return none, nil
	}
	return kb.Ref{Profile: spec.GetProfile(), Version: spec.GetVersion()}, a.add(ctx, r, v, append(files, more...))
}

// add uploads the files of a version and then sends it, with the profile's settings of that moment: changes by others
// during the boot test and the upload are kept.
func (a *app) add(ctx context.Context, r registration, v *api.ProfileVersion, files []catalog.Artifact) error {
	for _, file := range files {
		if err := a.upload(ctx, file); err != nil {
			return err
		}
	}
	profile, err := a.profileIfAny(ctx, r.profile)
	if err != nil {
		return err
	}
	now, err := a.send(ctx, withVersion(profile, r, v), r.admitting.reason, func(p *api.Profile) int { return len(p.GetVersions()) })
	if err == nil {
		a.sayMeasured(refOf(v), measuredOf(convert.FindVersion(now, v.GetKernel().GetVersion())))
	}
	return err
}

// withVersion is what is sent to add a version to a profile, which may be nil.
func withVersion(profile *api.Profile, r registration, v *api.ProfileVersion) *api.Profile {
	if profile == nil {
		profile = newProfile(r)
		profile.DefaultVersion = v.GetKernel().GetVersion()
	} else {
		profile = proto.CloneOf(profile)
		// 0 leaves the default as it is, and versions that are not named stay.
		profile.DefaultVersion = 0
		if r.makeDefault {
			profile.DefaultVersion = v.GetKernel().GetVersion()
		}
	}
	profile.Versions, profile.History = []*api.ProfileVersion{v}, nil
	return profile
}

// registerAgain may change the default version, add documents to a version that has none, and a measurement with its report to
// one that was not measured.
func (a *app) registerAgain(ctx context.Context, profile *api.Profile, v *api.ProfileVersion, r registration) error {
	a.say("%s is this kernel already", refOf(v))
	if len(r.signature.keys) > 0 {
		a.say("its signature is unchanged; kernelctl kernel sign replaces it")
	}
	var files []catalog.Artifact
	var would []string
	changed := false
	if len(v.GetDocuments()) == 0 {
		var err error
		if v.Documents, files, err = r.describe(); err != nil {
			return err
		}
		if v.Measured, err = r.measured(v.GetKernel().GetImageDigest()); err != nil {
			return err
		}
		changed = true
	} else if more, err := r.measureLater(v); err != nil {
		return err
	} else if more != nil {
		files, changed = more, true
		would = append(would, "would add what was measured of it")
	}
	if r.makeDefault && profile.GetDefaultVersion() != v.GetKernel().GetVersion() {
		changed = true
		would = append(would, "would make it the default version")
	}
	if r.dryRun && changed {
		if err := a.rehearse(ctx, withVersion(profile, r, v)); err != nil {
			return err
		}
		for _, text := range would {
			a.say("%s", text)
		}
	}
	if r.dryRun || !changed {
		a.sayMeasured(refOf(v), measuredOf(v))
		return nil
	}
	return a.add(ctx, r, v, files)
}

func newProfile(r registration) *api.Profile {
	application := cmp.Or(r.application, r.profile)
	return &api.Profile{
		Name: r.profile, Application: application, Description: cmp.Or(r.description, "Kernel for "+application),
		Reuse: api.ReusePolicy_REUSE_POLICY_SAME_PROFILE, Fallback: api.FallbackPolicy_FALLBACK_POLICY_HOLD,
		BootAttempts: 2, BootTimeoutMs: 120_000,
	}
}

// read makes the kernel of the files. Its version follows the profile's.
func (r registration) read(profile *api.Profile) (*api.KernelSpec, []catalog.Artifact, error) {
	version := r.version
	for _, v := range profile.GetVersions() {
		if r.version == 0 {
			version = max(version, v.GetKernel().GetVersion())
		}
	}
	if r.version == 0 {
		version++
	}
	manifest, err := catalog.ReadManifest(r.manifest)
	if err != nil {
		return nil, nil, err
	}
	if err := r.findModules(); err != nil {
		return nil, nil, err
	}
	files, err := catalog.DescribeFiles(r.kernel, r.initrd, r.modules)
	if err != nil {
		return nil, nil, err
	}
	k, err := manifest.Kernel(kb.Ref{Profile: r.profile, Version: version}, r.arguments, files)
	if err != nil {
		return nil, nil, err
	}
	k.SystemCores = r.systemCores
	return convert.KernelToProto(k), files.All(), nil
}

// sameBoot reports whether two kernels are one, whatever their versions.
func sameBoot(x, y *api.KernelSpec) bool {
	return x.GetImageDigest() == y.GetImageDigest() && x.GetInitrdDigest() == y.GetInitrdDigest() && x.GetModulesDigest() == y.GetModulesDigest() &&
		slices.Equal(x.GetArguments(), y.GetArguments()) && x.GetSystemCores() == y.GetSystemCores()
}

func (a *app) kernelList(ctx context.Context, _ []string) error {
	profiles, err := a.profiles(ctx)
	if err != nil {
		return err
	}
	versions := []*api.ProfileVersion{}
	for _, p := range profiles {
		versions = append(versions, p.GetVersions()...)
	}
	return showList(a, "versions", versions, a.orNone(len(versions), "no kernels", func(p *page) { versionRows(p, versions) }))
}

func (a *app) kernelShow(ctx context.Context, args []string) error {
	ref, err := kb.ParseRef(args[0])
	if err != nil {
		return usageError{err}
	}
	profile, err := a.profile(ctx, ref.Profile)
	if err != nil {
		return err
	}
	if ref.Version == 0 {
		ref.Version = profile.GetDefaultVersion()
	}
	v := convert.FindVersion(profile, ref.Version)
	if v == nil {
		return fmt.Errorf("kernel profile %q has no version %d: %w", ref.Profile, ref.Version, kb.ErrNotFound)
	}
	from, err := a.origin(ctx, v)
	if err != nil {
		return err
	}
	return a.showVersion(v, from)
}

func kernelPage(p *page, v *api.ProfileVersion, o origin) {
	k := v.GetKernel()
	p.row("Kernel:", refOf(v))
	p.row("State:", convert.VersionState(v))
	if q := v.GetQuarantine(); q != nil {
		p.row("Quarantined:", clock(q.GetSince().AsTime())+" "+q.GetReason())
	}
	p.row("Failed boots:", v.GetBootFailures())
	p.row("Release:", k.GetRelease())
	p.row("Build id:", k.GetBuildId())
	p.row("Architecture:", k.GetArchitecture())
	p.row("Image:", p.shortDigest(k.GetImageDigest())+" "+rounded.Size(k.GetImageSize()))
	if k.GetInitrdDigest() != "" {
		p.row("Initrd:", p.shortDigest(k.GetInitrdDigest())+" "+rounded.Size(k.GetInitrdSize()))
	}
	if k.GetModulesDigest() != "" {
		p.row("Modules:", p.shortDigest(k.GetModulesDigest())+" "+rounded.Size(k.GetModulesSize()))
		for _, m := range o.modules() {
			p.row("", fmt.Sprintf("%s %s: %s", m.Name, m.Version, strings.Join(m.Modules, ", ")))
		}
	}
	p.row("Arguments:", fmt.Sprintf("%q", k.GetArguments()))
	if k.GetSystemCores() > 0 {
		p.row("System cores:", k.GetSystemCores())
		p.row("Application cores:", "the other cores of each node")
	}
	if v.GetNoBtf() {
		p.row("Profiling:", "impossible, it has no type information (BTF)")
	}
	p.row("Least memory:", fmt.Sprintf("%d MiB", k.GetMinMemoryMib()))
	p.row("Registered:", clock(v.GetRegisteredAt().AsTime()))
	p.row("Signed:", signedBy(v))
	if m := measuredOf(v); m != nil {
		p.row("Verdict:", outcomeText(m))
		p.field("Workload:", m.Workload)
		measuredRows(p, m)
	} else if o.verdict == "" {
		p.row("Verdict:", notMeasured)
	}
	p.line("Drivers:")
	p.paragraph(2, "%s", strings.Join(k.GetDrivers(), " "))
}

// mostLacking nodes are named.
const mostLacking = 8

// confirmStock requires a confirmation before a kernel becomes a version of stock: every node returns to it after its job,
// and a node that cannot run it is lost.
func (r registration) confirmStock() error {
	switch {
	case r.replaceStock && r.profile != kb.StockProfile:
		return usageError{fmt.Errorf("--replace-stock goes with --profile %s", kb.StockProfile)}
	case !r.replaceStock && r.profile == kb.StockProfile:
		return fmt.Errorf("profile %q is for the distribution's own kernel, which nodes boot after a reset and after each job; register other kernels in their own profile. "+
			"--replace-stock registers it anyway, and with --dry-run lists nodes that would lack a driver: %w", r.profile, kb.ErrFailedPrecondition)
	}
	return nil
}

// noteMissingDrivers lists nodes that lack a driver in a new version of stock.
func (a *app) noteMissingDrivers(ctx context.Context, k *api.KernelSpec) error {
	if k.GetProfile() != kb.StockProfile {
		return nil
	}
	lacking, nodes, err := a.missingDrivers(ctx, k)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("once kernel %s (%s) is the default every node returns to it", refOfSpec(k), k.GetRelease())
	switch more := len(lacking) - mostLacking; {
	case nodes == 0:
		a.say("note: %s; no node has reported its drivers yet", what)
	case len(lacking) == 0:
		a.say("note: %s; it has the drivers that the %d nodes use", what, nodes)
	case more > 0:
		a.say("warning: %s, and it lacks drivers that %d of %d nodes use: %s; and %d more", what, len(lacking), nodes, strings.Join(lacking[:mostLacking], "; "), more)
	default:
		a.say("warning: %s, and it lacks drivers that %d of %d nodes use: %s", what, len(lacking), nodes, strings.Join(lacking, "; "))
	}
	return nil
}

// missingDrivers returns nodes that use drivers missing in a kernel.
func (a *app) missingDrivers(ctx context.Context, k *api.KernelSpec) (lacking []string, nodes int, err error) {
	response, err := call(ctx, a, api.NewNodeServiceClient, api.NodeServiceClient.ListNodes, &api.ListNodesRequest{})
	if err != nil {
		return nil, 0, err
	}
	for _, n := range response.GetNodes() {
		if len(n.GetInventory().GetDrivers()) == 0 {
			continue
		}
		nodes++
		var missing []string
		for _, driver := range n.GetInventory().GetDrivers() {
			if !slices.Contains(k.GetDrivers(), driver) {
				missing = append(missing, driver)
			}
		}
		if len(missing) > 0 {
			lacking = append(lacking, n.GetName()+" ("+strings.Join(missing, " ")+")")
		}
	}
	return lacking, nodes, nil
}
