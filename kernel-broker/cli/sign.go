package cli

import (
	"context"
	"crypto"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	kernelbroker "github.com/kernelbroker/kernelbroker/kernel-broker"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/client"
	"github.com/kernelbroker/kernelbroker/kernel-broker/signing"
	"github.com/kernelbroker/kernelbroker/kernel-broker/signing/keys"
)

// signature is what the flags say of how kernels are signed.
type signature struct {
	keys       []string
	passphrase string
	cluster    string
	valid      time.Duration
	floor      uint32
	opened     []crypto.Signer
}

func (s *signature) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringArrayVar(&s.keys, "sign-key", nil, "sign with this `key`: a file or a PKCS#11 URI; may be given again")
	f.StringVar(&s.passphrase, "passphrase-file", "", "`file` with the key's passphrase or the token's PIN; without one it is asked for")
	f.StringVar(&s.cluster, "cluster", "", "`name` of the cluster that it is signed for; the settings file's when not given")
	f.DurationVar(&s.valid, "valid", 365*24*time.Hour, "how long the signature is good")
	f.Uint32Var(&s.floor, "floor", 0, "once a node has this kernel it boots no `version` of the profile below that any more")
}

// open gets the keys before anything else is done. It leaves none for who did
// not ask for a signature.
func (s *signature) open(ctx context.Context, a *app) error {
	if len(s.keys) == 0 {
		if s.floor != 0 {
			return usageError{fmt.Errorf("--floor is part of a signature; give --sign-key")}
		}
		return nil
	}
	if s.cluster == "" {
		config, err := client.LoadConfig(a.config)
		if err != nil {
			return err
		}
		if s.cluster = config.Trust.Cluster; s.cluster == "" {
			return usageError{fmt.Errorf("--cluster: which cluster is it signed for? (or cluster: in %s)", a.config)}
		}
	}
	for _, name := range s.keys {
		by, err := keys.Open(ctx, name, a.ask(s.passphrase))
		if err != nil {
			return err
		}
		s.opened = append(s.opened, by)
	}
	return nil
}

// sign makes the envelope of a kernel; nil without keys. The floor never sinks:
// it is at least that of every signature in the profile.
func (s *signature) sign(ctx context.Context, profile *api.Profile, spec *api.KernelSpec) ([]byte, error) {
	if len(s.opened) == 0 {
		return nil, nil
	}
	floor := s.floor
	for _, v := range profile.GetVersions() {
		if m, _, err := signing.Peek(v.GetEnvelope()); err == nil && m.Floor <= spec.GetVersion() {
			floor = max(floor, m.Floor)
		}
	}
	now := time.Now()
	return signing.Sign(ctx, signing.ManifestOf(kernelOf(spec), signing.Terms{
		Cluster: s.cluster, Made: now, Expires: now.Add(s.valid), Floor: floor,
	}), s.opened...)
}

func (a *app) kernelSignCommand() *cobra.Command {
	var s signature
	var reason string
	c := &cobra.Command{
		Use: "sign NAME@VERSION --sign-key KEY", Short: "Give a registered kernel a new signature",
		Long: `Signs a kernel that is registered: one that was registered without, one whose
signature expires, or whose key goes. What is signed is what the broker says of
the kernel, which is shown first; compare it with what you built. The kernel
stays as it is.`,
		Example: "  kernelctl kernel sign mitgcm@3 --sign-key release.pem --cluster alpha",
		Args:    cobra.ExactArgs(1),
		RunE:    a.run(func(ctx context.Context, args []string) error { return a.kernelSign(ctx, args[0], &s, reason) }),
	}
	s.flags(c)
	c.Flags().StringVar(&reason, "reason", "", "`text` for the record")
	_ = c.MarkFlagRequired("sign-key") // defined above
	return c
}

func (a *app) kernelSign(ctx context.Context, text string, s *signature, reason string) error {
	ref, err := versionRef(text)
	if err != nil {
		return err
	}
	if err := s.open(ctx, a); err != nil {
		return err
	}
	profile, err := a.profile(ctx, ref.Profile)
	if err != nil {
		return err
	}
	for _, v := range profile.GetVersions() {
		k := v.GetKernel()
		if k.GetVersion() != ref.Version {
			continue
		}
		a.say("signing %s: %s, build id %s, image %s, arguments %q", ref, k.GetRelease(), k.GetBuildId(), k.GetImageDigest(), k.GetArguments())
		envelope, err := s.sign(ctx, profile, k)
		if err != nil {
			return err
		}
		id, err := requestID()
		if err != nil {
			return err
		}
		_, err = call(ctx, a, api.NewCatalogServiceClient, api.CatalogServiceClient.SignVersion,
			&api.SignVersionRequest{RequestId: id, Name: ref.Profile, Version: ref.Version, Envelope: envelope, Reason: reason})
		if err == nil {
			a.say("%s signed, good until %s", ref, clock(time.Now().Add(s.valid)))
		}
		return err
	}
	return fmt.Errorf("kernel %q: %w", ref, kernelbroker.ErrNotFound)
}

// versionRef reads NAME@VERSION, where the version is not left out.
func versionRef(text string) (kernelbroker.Ref, error) {
	ref, err := kernelbroker.ParseRef(text)
	if err == nil && ref.Version == 0 {
		err = fmt.Errorf("%q names no version; write %s@VERSION", text, text)
	}
	if err != nil {
		return ref, usageError{err}
	}
	return ref, nil
}

// kernelOf is the inverse of kernelToProto.
func kernelOf(k *api.KernelSpec) kernelbroker.Kernel {
	return kernelbroker.Kernel{
		Profile: k.GetProfile(), Version: k.GetVersion(), ImageDigest: k.GetImageDigest(), ImageSize: k.GetImageSize(),
		InitrdDigest: k.GetInitrdDigest(), InitrdSize: k.GetInitrdSize(), Arguments: k.GetArguments(), BuildID: k.GetBuildId(),
		Release: k.GetRelease(), Architecture: k.GetArchitecture(), Drivers: k.GetDrivers(), MinMemoryMiB: k.GetMinMemoryMib(),
	}
}

// signedBy says what the signature of a version is, without any trust in it.
func signedBy(v *api.ProfileVersion) string {
	m, by, err := signing.Peek(v.GetEnvelope())
	if err != nil {
		return err.Error()
	}
	text := fmt.Sprintf("for cluster %s, until %s, by", m.Cluster, clock(m.Expires))
	for _, id := range by {
		text += " " + short(id[len("sha256:"):])
	}
	if m.Floor > 0 {
		text += fmt.Sprintf(", floor %d", m.Floor)
	}
	return text
}
