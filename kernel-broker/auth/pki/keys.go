// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"cmp"
	"crypto"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/mtls"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/atomicfile"
)

// The files of the generations: the higher the number, the newer. A site that
// wants its own authority to sign puts its certificate and key, one file, there
// before the first start.
const (
	keyPattern = "ca-*.pem"
	keyName    = "ca-%04d.pem"
)

// readKeys reads every generation in a folder, the oldest first; none where
// there is no folder.
func readKeys(dir string) ([]signing, error) {
	paths, err := filepath.Glob(filepath.Join(dir, keyPattern))
	if err != nil {
		return nil, fmt.Errorf("authority in %q: %w", dir, err)
	}
	var keys []signing
	for _, path := range paths {
		number, err := numberOf(path)
		if err != nil {
			return nil, err
		}
		k, err := readGeneration(path)
		if err != nil {
			return nil, fmt.Errorf("authority %q: %w", path, err)
		}
		k.number = number
		keys = append(keys, k)
	}
	slices.SortStableFunc(keys, func(a, b signing) int { return cmp.Compare(a.number, b.number) })
	return keys, nil
}

// numberOf reads the number in a file's name. A file without one is no key that
// may count for old or new by chance: a copy that somebody made, for example.
func numberOf(path string) (int, error) {
	text := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), "ca-"), ".pem")
	number, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return 0, fmt.Errorf("authority %q: its name is not ca-NUMBER.pem, so nobody knows how old it is; rename it or move it out of the folder: %w", path, kb.ErrInvalid)
	}
	return int(number), nil
}

func readGeneration(path string) (signing, error) {
	files := mtls.NewFiles(mtls.Paths{Certificate: path, Key: path})
	pair, err := files.Certificate()
	if err != nil {
		return signing{}, err
	}
	key, can := pair.PrivateKey.(crypto.Signer)
	if !can || !pair.Leaf.IsCA || pair.Leaf.KeyUsage&x509.KeyUsageCertSign == 0 {
		return signing{}, fmt.Errorf("its first certificate may not sign others: %w", kb.ErrInvalid)
	}
	k := signing{certificate: pair.Leaf, key: key}
	if len(pair.Certificate) > 1 {
		if k.crossed, err = x509.ParseCertificate(pair.Certificate[1]); err != nil {
			return signing{}, fmt.Errorf("its second certificate: %w", err)
		}
	}
	return k, nil
}

// writeKey writes one generation, for the broker alone. It replaces none: the
// error is fs.ErrExist where there is one with this number.
func writeKey(dir string, k signing) error {
	private, err := mtls.EncodeKey(k.key)
	if err != nil {
		return err
	}
	list := []*x509.Certificate{k.certificate}
	if k.crossed != nil {
		list = append(list, k.crossed)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("authority: %w", err)
	}
	path := filepath.Join(dir, fmt.Sprintf(keyName, k.number))
	return atomicfile.WriteNew(path, append(mtls.EncodeCertificates(list), private...), 0o600)
}
