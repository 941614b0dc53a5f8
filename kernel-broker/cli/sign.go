// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"cmp"
	"context"
	"crypto"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/api/client"
	"github.com/kernelbroker/kernelbroker/kernel-broker/api/convert"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/signing"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/signing/keys"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/catalog"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/safeopen"
)

// signature holds the flags for signing kernels.
type signature struct {
	keys       []string
	verify     []string // files of public keys
	passphrase string
	cluster    string
	valid      time.Duration
	floor      uint32
	opened     []crypto.Signer
	known      signing.Trust // of the keys and those to verify with
}

func (s *signature) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringArrayVar(&s.keys, "sign-key", nil, "sign with this `key`: a file or a PKCS#11 URI; may be repeated")
	f.StringArrayVar(&s.verify, "verify-key", nil, "also trust signatures by the public key in this `file`, as those of --sign-key; may be repeated")
	f.StringVar(&s.passphrase, "passphrase-file", "", "`file` with the key's passphrase or the token's PIN (default: prompt)")
	f.StringVar(&s.cluster, "cluster", "", "`name` of the cluster to sign for (default: from the settings file)")
	f.DurationVar(&s.valid, "valid", 365*24*time.Hour, "how long the signature is good")
	f.Uint32Var(&s.floor, "floor", 0, "once a node has this kernel it boots no `version` of the profile below that any more")
}

// open opens the keys first. Without a signature requested there are none.
func (s *signature) open(ctx context.Context, a *app) error {
	if len(s.keys) == 0 {
		if s.floor != 0 {
			return usageError{fmt.Errorf("--floor requires --sign-key")}
		}
		if len(s.verify) > 0 {
			return usageError{fmt.Errorf("--verify-key requires --sign-key")}
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
	return s.loadTrusted()
}

// manifest is the content to sign for a kernel. Its floor is at least that of every signature in the profile by a known
// key. Unknown keys do not count: they could make nodes refuse kernels for good.
func (s *signature) manifest(profile *api.Profile, k kb.Kernel) signing.Manifest {
	floor := s.floor
	for _, v := range profile.GetVersions() {
		if m, err := s.verified(v.GetEnvelope()); err == nil && m.Profile == k.Profile && m.Floor <= k.Version {
			floor = max(floor, m.Floor)
		}
	}
	now := time.Now()
	return signing.ManifestOf(k, signing.Terms{Cluster: s.cluster, Made: now, Expires: now.Add(s.valid), Floor: floor})
}

// sign makes the envelope of a kernel that is here; nil without keys.
func (s *signature) sign(ctx context.Context, a *app, profile *api.Profile, spec *api.KernelSpec) ([]byte, error) {
	if len(s.opened) == 0 {
		return nil, nil
	}
	m := s.manifest(profile, convert.KernelFromProto(spec))
	if m.Floor > 0 {
		a.say("%s: signed with a floor: %s", m.Kernel().Ref(), formatFloor(m))
	}
	return signing.Sign(ctx, m, s.opened...)
}

func formatFloor(m signing.Manifest) string {
	if m.Floor == 0 {
		return "none"
	}
	return fmt.Sprintf("nodes that have it boot no version below %d of %s any more", m.Floor, m.Profile)
}

func (a *app) kernelSignCommand() *cobra.Command {
	var s signature
	var w evidence
	var reason string
	c := a.command("sign NAME@VERSION --sign-key KEY", "Give a registered kernel a new signature", cobra.ExactArgs(1),
		func(ctx context.Context, args []string) error { return a.kernelSign(ctx, args[0], &s, w, reason) })
	s.flags(c)
	w.flags(c)
	c.Flags().StringVar(&reason, "reason", "", "`text` for the record")
	_ = c.MarkFlagRequired("sign-key") // defined above
	return c
}

func (a *app) kernelSign(ctx context.Context, text string, s *signature, w evidence, reason string) error {
	ref, err := versionRef(text)
	if err != nil {
		return err
	}
	if err := w.validate(); err != nil {
		return err
	}
	if err := s.open(ctx, a); err != nil {
		return err
	}
	profile, err := a.profile(ctx, ref.Profile)
	if err != nil {
		return err
	}
	v := convert.FindVersion(profile, ref.Version)
	if v == nil {
		return fmt.Errorf("kernel %q: %w", ref, kb.ErrNotFound)
	}
	k := convert.KernelFromProto(v.GetKernel())
	if k.Ref() != ref {
		return fmt.Errorf("kernel %q: the broker answers with kernel %q, and kernelctl does not sign that one instead: %w", ref, k.Ref(), kb.ErrFailedPrecondition)
	}
	whose, err := w.check(s, k, v.GetEnvelope())
	if err != nil {
		return err
	}
	m := s.manifest(profile, k)
	a.showSigned(m, s, whose)
	envelope, err := signing.Sign(ctx, m, s.opened...)
	if err != nil {
		return err
	}
	_, err = call(ctx, a, api.NewCatalogServiceClient, api.CatalogServiceClient.SignVersion,
		&api.SignVersionRequest{RequestId: requestID(), Name: ref.Profile, Version: ref.Version, Envelope: envelope, Reason: reason})
	if err == nil {
		a.say("%s signed, good until %s", ref, clock(m.Expires))
	}
	return err
}

// showSigned shows the complete signed content and its source.
func (a *app) showSigned(m signing.Manifest, s *signature, whose string) {
	p := &page{}
	p.line("signing %s %s:", m.Kernel().Ref(), whose)
	p.row("  image", fmt.Sprintf("%s, %d bytes", m.Image.Digest, m.Image.Size))
	if m.Initrd != nil {
		p.row("  initrd", fmt.Sprintf("%s, %d bytes", m.Initrd.Digest, m.Initrd.Size))
	} else {
		p.row("  initrd", "none, the node's own")
	}
	if m.Modules != nil {
		p.row("  modules", fmt.Sprintf("%s, %d bytes", m.Modules.Digest, m.Modules.Size))
	}
	p.row("  arguments", fmt.Sprintf("%q", m.Arguments))
	p.row("  release", m.Release)
	p.row("  build id", m.BuildID)
	p.row("  architecture", m.Architecture)
	p.row("  drivers", fmt.Sprintf("%d: %s", len(m.Drivers), strings.Join(m.Drivers, " ")))
	if m.SystemCores > 0 {
		p.row("  system cores", m.SystemCores)
	}
	p.row("  least memory", fmt.Sprintf("%d MiB", m.MinMemoryMiB))
	p.row("  cluster", m.Cluster)
	p.row("  made", clock(m.Made))
	p.row("  expires", clock(m.Expires))
	p.row("  floor", formatFloor(m))
	for _, by := range s.opened {
		if id, err := signing.KeyID(by.Public()); err == nil { // it was opened, so it has one
			p.row("  by key", id)
		}
	}
	p.flush()
	a.say("%s", strings.TrimRight(p.text.String(), "\n"))
}

// versionRef reads NAME@VERSION, where the version is not left out.
func versionRef(text string) (kb.Ref, error) {
	ref, err := kb.ParseRef(text)
	if err == nil && ref.Version == 0 {
		err = fmt.Errorf("%q names no version; write %s@VERSION", text, text)
	}
	if err != nil {
		return ref, usageError{err}
	}
	return ref, nil
}

// signedBy describes a version's signature without verifying it.
func signedBy(v *api.ProfileVersion) string {
	m, by, err := signing.Peek(v.GetEnvelope())
	if err != nil {
		return err.Error()
	}
	text := fmt.Sprintf("for cluster %s, until %s, by", m.Cluster, clock(m.Expires))
	for _, id := range by {
		text += " " + cmp.Or(short(strings.TrimPrefix(id, "sha256:")), "a key that is not named")
	}
	if m.Floor > 0 {
		text += fmt.Sprintf(", floor %d", m.Floor)
	}
	return text
}

// evidence holds the flags with evidence, besides the broker's, for a registered kernel.
type evidence struct {
	kernel, initrd, modules, manifest string
	arguments                         []string
	asDescribed                       bool
}

func (w *evidence) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&w.kernel, "kernel", "", "the expected bzImage `file`")
	f.StringVar(&w.initrd, "initrd", "", "the expected initrd `file`, with --kernel (default: none)")
	f.StringVar(&w.modules, "modules", "", "the expected `file` modules.tar.zst, with --kernel (default: none)")
	f.StringArrayVar(&w.arguments, "argument", nil, "an expected kernel `argument`, with --kernel; repeat it for all arguments")
	f.StringVar(&w.manifest, "manifest", "", "the expected kernel.json `file`, with --kernel")
	f.BoolVar(&w.asDescribed, "as-described", false, "trust the broker's description of the kernel")
}

func (w evidence) validate() error {
	switch {
	case w.kernel == "" && (w.initrd != "" || w.modules != "" || w.manifest != "" || len(w.arguments) > 0):
		return usageError{errors.New("--initrd, --modules, --manifest and --argument require --kernel")}
	case w.kernel != "" && w.asDescribed:
		return usageError{errors.New("--as-described and --kernel exclude each other")}
	}
	return nil
}

// check returns the evidence for the broker's description of a kernel. Without any it is an error with the possible
// remedies.
func (w evidence) check(s *signature, k kb.Kernel, envelope []byte) (whose string, err error) {
	if err := k.Validate(); err != nil {
		return "", fmt.Errorf("the broker's description is invalid: %w", err)
	}
	if w.kernel != "" {
		if err := w.compare(k); err != nil {
			return "", err
		}
		if w.manifest == "" {
			return "according to the files; release, build id, drivers, least memory and system cores according to the broker", nil
		}
		return "according to the files; the least memory and the system cores according to the broker", nil
	}
	m, err := s.verified(envelope)
	if err == nil {
		if err := m.Describes(k); err != nil {
			return "", fmt.Errorf("kernel %q: its signature by a known key contradicts the broker: %w: %w", k.Ref(), err, kb.ErrFailedPrecondition)
		}
		return "according to its current signature", nil
	}
	if w.asDescribed {
		return "according to the broker; no evidence other than the broker's", nil
	}
	return "", fmt.Errorf("kernel %q: no evidence other than the broker's: its current signature: %w; "+
		"give --kernel with the files of its build, --verify-key with the key that signed it, or --as-described to trust the broker: %w",
		k.Ref(), err, kb.ErrFailedPrecondition)
}

// compare compares the broker's description of a kernel with the files.
func (w evidence) compare(k kb.Kernel) error {
	files, err := catalog.DescribeFiles(w.kernel, w.initrd, w.modules)
	if err != nil {
		return err
	}
	want := k
	files.Describe(&want)
	want.Arguments = w.arguments
	if w.manifest != "" {
		m, err := catalog.ReadManifest(w.manifest)
		if err != nil {
			return err
		}
		if want, err = m.Kernel(k.Ref(), w.arguments, files); err != nil {
			return err
		}
		want.MinMemoryMiB, want.SystemCores = k.MinMemoryMiB, k.SystemCores // which no manifest has
	}
	err = signing.ManifestOf(want, signing.Terms{}).Describes(k)
	var differs *signing.MismatchError
	if errors.As(err, &differs) {
		return fmt.Errorf("kernel %q differs from the files: its %s is %q at the broker and %q in the files: %w",
			k.Ref(), differs.Field, differs.Have, differs.Signed, kb.ErrFailedPrecondition)
	}
	return err
}

func (s *signature) loadTrusted() error {
	var publics []crypto.PublicKey
	for _, by := range s.opened {
		publics = append(publics, by.Public())
	}
	for _, path := range s.verify {
		public, err := readPublic(path)
		if err != nil {
			return fmt.Errorf("key %q: %w", path, err)
		}
		publics = append(publics, public)
	}
	var entries strings.Builder
	seen := map[string]bool{}
	for _, public := range publics {
		entry, id, err := trustEntry("known", public)
		if err != nil {
			return err
		}
		if !seen[id] {
			entries.WriteString(entry)
		}
		seen[id] = true
	}
	var err error
	s.known, err = signing.ParseTrust("keys given", fmt.Appendf(nil, "cluster: %q\nkeys:\n%s", s.cluster, entries.String()))
	return err
}

// verified is the content of an envelope signed for this cluster by a known key. Expiry is ignored: the signature is
// checked at the time of signing.
func (s *signature) verified(envelope []byte) (signing.Manifest, error) {
	m, _, err := signing.Peek(envelope)
	if err != nil {
		return signing.Manifest{}, err
	}
	v, err := signing.Verify(envelope, s.known, m.Kernel(), signing.Memory{}, m.Made)
	return v.Manifest, err
}

// maxPublic is far above the size of a public key.
const maxPublic = 64 << 10

// publicKey is a public key in PEM, and indentation that of a trust list.
var (
	publicKey   = regexp.MustCompile(`(?s)-----BEGIN .*?-----END [^\n]*`)
	indentation = regexp.MustCompile(`(?m)^[ \t]+`)
)

// readPublic reads the public key in a file: PEM, or an entry for trust lists as
// kernelctl key show prints it, which has the same lines indented.
func readPublic(path string) (crypto.PublicKey, error) {
	text, err := safeopen.Read(path, maxPublic, nil)
	if err != nil {
		return nil, err
	}
	return signing.ParsePublicKey(bytes.Join(publicKey.FindAll(indentation.ReplaceAll(text, nil), -1), []byte("\n")))
}
