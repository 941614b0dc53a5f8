// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"math"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

// KernelToProto converts one kernel, for the services and for a node's desired state.
func KernelToProto(k kb.Kernel) *api.KernelSpec {
	return &api.KernelSpec{
		Profile: k.Profile, Version: k.Version,
		ImageDigest: k.ImageDigest, ImageSize: k.ImageSize,
		InitrdDigest: k.InitrdDigest, InitrdSize: k.InitrdSize,
		Arguments: k.Arguments, BuildId: k.BuildID, Release: k.Release,
		Architecture: k.Architecture, Drivers: k.Drivers, MinMemoryMib: k.MinMemoryMiB,
	}
}

// KernelFromProto is the inverse of KernelToProto.
func KernelFromProto(k *api.KernelSpec) kb.Kernel {
	return kb.Kernel{
		Profile: k.GetProfile(), Version: k.GetVersion(),
		ImageDigest: k.GetImageDigest(), ImageSize: k.GetImageSize(),
		InitrdDigest: k.GetInitrdDigest(), InitrdSize: k.GetInitrdSize(),
		Arguments: k.GetArguments(), BuildID: k.GetBuildId(), Release: k.GetRelease(),
		Architecture: k.GetArchitecture(), Drivers: k.GetDrivers(), MinMemoryMiB: k.GetMinMemoryMib(),
	}
}

// ProfileToProto converts a profile with all versions and their lifecycle.
func ProfileToProto(p kb.Profile) *api.Profile {
	out := &api.Profile{
		Name: p.Name, Application: p.Application, Description: p.Description,
		DefaultVersion: p.DefaultVersion, Reuse: reuseToProto[p.Reuse],
		BootAttempts: p.BootAttempts, BootTimeoutMs: uint64(max(0, p.BootTimeout.Milliseconds())),
		Fallback: fallbackToProto[p.Fallback],
	}
	for _, v := range p.Versions {
		out.Versions = append(out.Versions, versionToProto(v))
	}
	for _, c := range p.History {
		out.History = append(out.History, &api.Change{At: TimeToProto(c.At), Who: c.Who, What: c.What, Version: c.Version, Reason: c.Reason})
	}
	return out
}

// ProfileFromProto is the inverse of ProfileToProto, to the millisecond, except the
// history, which only the broker writes.
func ProfileFromProto(p *api.Profile) kb.Profile {
	out := kb.Profile{
		Name: p.GetName(), Application: p.GetApplication(), Description: p.GetDescription(),
		DefaultVersion: p.GetDefaultVersion(), Reuse: reuseFromProto[p.GetReuse()],
		BootAttempts: p.GetBootAttempts(), BootTimeout: milliseconds(p.GetBootTimeoutMs()),
		Fallback: fallbackFromProto[p.GetFallback()],
	}
	for _, v := range p.GetVersions() {
		out.Versions = append(out.Versions, versionFromProto(v))
	}
	return out
}

func versionToProto(v kb.ProfileVersion) *api.ProfileVersion {
	out := &api.ProfileVersion{
		Kernel: KernelToProto(v.Kernel), BootFailures: v.BootFailures,
		RegisteredAt: TimeToProto(v.RegisteredAt), Envelope: v.Envelope,
	}
	if v.Quarantine != nil {
		out.Quarantine = &api.Quarantine{Reason: v.Quarantine.Reason, Since: TimeToProto(v.Quarantine.Since)}
	}
	if v.Retired != nil {
		out.Retired = &api.Retirement{Reason: v.Retired.Reason, Since: TimeToProto(v.Retired.Since)}
	}
	for _, d := range v.Documents {
		out.Documents = append(out.Documents, &api.Document{Name: d.Name, Digest: d.Digest, Size: d.Size})
	}
	return out
}

func versionFromProto(v *api.ProfileVersion) kb.ProfileVersion {
	out := kb.ProfileVersion{
		Kernel: KernelFromProto(v.GetKernel()), BootFailures: v.GetBootFailures(),
		RegisteredAt: TimeFromProto(v.GetRegisteredAt()), Envelope: v.GetEnvelope(),
	}
	if q := v.GetQuarantine(); q != nil {
		out.Quarantine = &kb.Quarantine{Reason: q.GetReason(), Since: TimeFromProto(q.GetSince())}
	}
	if r := v.GetRetired(); r != nil {
		out.Retired = &kb.Retirement{Reason: r.GetReason(), Since: TimeFromProto(r.GetSince())}
	}
	for _, d := range v.GetDocuments() {
		out.Documents = append(out.Documents, kb.Document{Name: d.GetName(), Digest: d.GetDigest(), Size: d.GetSize()})
	}
	return out
}

func milliseconds(n uint64) time.Duration {
	if n > math.MaxInt64/uint64(time.Millisecond) {
		return math.MaxInt64
	}
	return time.Duration(n) * time.Millisecond
}

var (
	reuseToProto = map[kb.ReusePolicy]api.ReusePolicy{
		kb.ReuseSameProfile: api.ReusePolicy_REUSE_POLICY_SAME_PROFILE,
		kb.ReuseNever:       api.ReusePolicy_REUSE_POLICY_NEVER,
	}
	reuseFromProto = inverse(reuseToProto)

	fallbackToProto = map[kb.FallbackPolicy]api.FallbackPolicy{
		kb.FallbackHold:    api.FallbackPolicy_FALLBACK_POLICY_HOLD,
		kb.FallbackRequeue: api.FallbackPolicy_FALLBACK_POLICY_REQUEUE,
	}
	fallbackFromProto = inverse(fallbackToProto)
)
