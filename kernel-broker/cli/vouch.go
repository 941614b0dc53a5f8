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

// witness is what the flags say of who vouches, beside the broker, for a kernel
// that is registered.
type witness struct {
	kernel, initrd, manifest string
	arguments                []string
	asDescribed              bool
}

func (w *witness) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&w.kernel, "kernel", "", "the bzImage `file` that it has to be")
	f.StringVar(&w.initrd, "initrd", "", "the initrd `file` that it has to come with, for --kernel; without one it must have none")
	f.StringArrayVar(&w.arguments, "argument", nil, "a kernel `argument` that it has to have, for --kernel; may be given again, and all of them must be")
	f.StringVar(&w.manifest, "manifest", "", "the kernel.json `file` that has to describe it, for --kernel")
	f.BoolVar(&w.asDescribed, "as-described", false, "take the broker's word for what the kernel is")
}

func (w witness) validate() error {
	switch {
	case w.kernel == "" && (w.initrd != "" || w.manifest != "" || len(w.arguments) > 0):
		return usageError{errors.New("--initrd, --manifest and --argument say what goes with --kernel; give it, too")}
	case w.kernel != "" && w.asDescribed:
		return usageError{errors.New("--as-described takes the broker's word and --kernel that of files: give one of them")}
	}
	return nil
}

// vouch says by whose word a kernel is what the broker describes. Without any it
// is an error that names what can be done.
func (w witness) vouch(s *signature, k kb.Kernel, envelope []byte) (whose string, err error) {
	if err := k.Validate(); err != nil {
		return "", fmt.Errorf("the broker describes what is no kernel: %w", err)
	}
	if w.kernel != "" {
		if err := w.compare(k); err != nil {
			return "", err
		}
		if w.manifest == "" {
			return "as the files have it; release, build id, drivers and least memory are the broker's word", nil
		}
		return "as the files have it; the least memory is the broker's word", nil
	}
	m, err := s.verified(envelope)
	if err == nil {
		if err := m.Describes(k); err != nil {
			return "", fmt.Errorf("kernel %q: its signature by a key that is known contradicts the broker: %w: %w", k.Ref(), err, kb.ErrFailedPrecondition)
		}
		return "as its present signature says", nil
	}
	if w.asDescribed {
		return "as the broker describes it; nobody but the broker vouches for that", nil
	}
	return "", fmt.Errorf("kernel %q: nobody but the broker vouches for what it is: its present signature: %w; "+
		"give --kernel with the files that it was built as, --verify-key with the key that signed it, or --as-described to take the broker's word: %w",
		k.Ref(), err, kb.ErrFailedPrecondition)
}

// compare holds what the broker says of a kernel to the files.
func (w witness) compare(k kb.Kernel) error {
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
		return fmt.Errorf("kernel %q is not what the files are: its %s is %q at the broker, theirs is %q: %w",
			k.Ref(), differs.Field, differs.Have, differs.Signed, kb.ErrFailedPrecondition)
	}
	return err
}

// describeFiles names image and initrd by their content; the latter is nil when
// there is none.
func describeFiles(kernel, initrd string) (image catalog.Artifact, with *catalog.Artifact, err error) {
	if image, err = catalog.DescribeFile(kernel, catalog.MaxImage); err != nil || initrd == "" {
		return image, nil, err
	}
	file, err := catalog.DescribeFile(initrd, catalog.MaxInitrd)
	return image, &file, err
}

// know makes the list of the keys whose signatures are believed.
func (s *signature) know() error {
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

// verified is what an envelope says, if it was signed for this cluster by a key
// that is known. That it has expired does not change what was signed: it is
// judged at the time of its making.
func (s *signature) verified(envelope []byte) (signing.Manifest, error) {
	m, _, err := signing.Peek(envelope)
	if err != nil {
		return signing.Manifest{}, err
	}
	v, err := signing.Verify(envelope, s.known, m.Kernel(), signing.Memory{}, m.Made)
	return v.Manifest, err
}

// maxPublic is far above what a public key takes.
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
