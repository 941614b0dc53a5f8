// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"crypto"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/signing"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/catalog"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/safeopen"
)

// evidence holds the flags with evidence, besides the broker's, for a registered kernel.
type evidence struct {
	kernel, initrd, manifest string
	arguments                []string
	asDescribed              bool
}

func (w *evidence) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&w.kernel, "kernel", "", "the expected bzImage `file`")
	f.StringVar(&w.initrd, "initrd", "", "the expected initrd `file`, with --kernel (default: none)")
	f.StringArrayVar(&w.arguments, "argument", nil, "an expected kernel `argument`, with --kernel; repeat it for all arguments")
	f.StringVar(&w.manifest, "manifest", "", "the expected kernel.json `file`, with --kernel")
	f.BoolVar(&w.asDescribed, "as-described", false, "trust the broker's description of the kernel")
}

func (w evidence) validate() error {
	switch {
	case w.kernel == "" && (w.initrd != "" || w.manifest != "" || len(w.arguments) > 0):
		return usageError{errors.New("--initrd, --manifest and --argument require --kernel")}
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
			return "according to the files; release, build id, drivers and least memory according to the broker", nil
		}
		return "according to the files; the least memory according to the broker", nil
	}
	m, err := s.verified(envelope)
	if err == nil {
		if err := m.Describes(k); err != nil {
			return "", fmt.Errorf("kernel %q: its signature by a known key contradicts the broker: %w: %w", k.Ref(), err, kb.ErrFailedPrecondition)
		}
		return "according to its current signature", nil
	}
	if w.asDescribed {
		return "according to the broker; no evidence besides the broker's", nil
	}
	return "", fmt.Errorf("kernel %q: no evidence besides the broker's: its current signature: %w; "+
		"give --kernel with the files of its build, --verify-key with the key that signed it, or --as-described to trust the broker: %w",
		k.Ref(), err, kb.ErrFailedPrecondition)
}

// compare compares the broker's description of a kernel with the files.
func (w evidence) compare(k kb.Kernel) error {
	image, initrd, err := describeFiles(w.kernel, w.initrd)
	if err != nil {
		return err
	}
	want := k
	want.ImageDigest, want.ImageSize, want.Arguments = image.Digest, image.Size, w.arguments
	want.InitrdDigest, want.InitrdSize = "", 0
	if initrd != nil {
		want.InitrdDigest, want.InitrdSize = initrd.Digest, initrd.Size
	}
	if w.manifest != "" {
		m, err := catalog.ReadManifest(w.manifest)
		if err != nil {
			return err
		}
		if want, err = m.Kernel(k.Ref(), w.arguments, image, initrd); err != nil {
			return err
		}
		want.MinMemoryMiB = k.MinMemoryMiB // which no manifest has
	}
	err = signing.ManifestOf(want, signing.Terms{}).Describes(k)
	var differs *signing.MismatchError
	if errors.As(err, &differs) {
		return fmt.Errorf("kernel %q differs from the files: its %s is %q at the broker and %q in the files: %w",
			k.Ref(), differs.Field, differs.Have, differs.Signed, kb.ErrFailedPrecondition)
	}
	return err
}

// describeFiles identifies image and initrd by their content; initrd is nil if there is none.
func describeFiles(kernel, initrd string) (image catalog.Artifact, with *catalog.Artifact, err error) {
	if image, err = catalog.DescribeFile(kernel, catalog.MaxImage); err != nil || initrd == "" {
		return image, nil, err
	}
	file, err := catalog.DescribeFile(initrd, catalog.MaxInitrd)
	return image, &file, err
}

// loadTrusted loads the trusted keys.
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

// readPublic reads the public key in a file: PEM, or an entry for trust lists as
// kernelctl key show prints it, which has the same lines indented.
func readPublic(path string) (crypto.PublicKey, error) {
	text, err := safeopen.Read(path, maxPublic, nil)
	if err != nil {
		return nil, err
	}
	var block strings.Builder
	inside := false
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		inside = inside || strings.HasPrefix(line, "-----BEGIN ")
		if inside {
			block.WriteString(line + "\n")
		}
		inside = inside && !strings.HasPrefix(line, "-----END ")
	}
	return signing.ParsePublicKey([]byte(block.String()))
}
