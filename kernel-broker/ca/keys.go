package ca

import (
	"crypto"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	kernelbroker "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/mtls"
	"github.com/kernelbroker/kernelbroker/kernel-broker/replace"
)

// keyPattern matches the files of the generations, which sort by age. A site
// that wants its own authority to sign puts its certificate and key, one file,
// there before the first start.
const keyPattern = "ca-*.pem"

// readKeys reads every generation in a folder; none where there is no folder.
func readKeys(dir string) ([]signing, error) {
	paths, err := filepath.Glob(filepath.Join(dir, keyPattern))
	if err != nil {
		return nil, fmt.Errorf("authority in %q: %w", dir, err)
	}
	slices.Sort(paths)
	var keys []signing
	for _, path := range paths {
		k, err := readGeneration(path)
		if err != nil {
			return nil, fmt.Errorf("authority %q: %w", path, err)
		}
		keys = append(keys, k)
	}
	return keys, nil
}

func readGeneration(path string) (signing, error) {
	files := mtls.NewFiles(mtls.Paths{Certificate: path, Key: path})
	pair, err := files.Certificate()
	if err != nil {
		return signing{}, err
	}
	key, can := pair.PrivateKey.(crypto.Signer)
	if !can || !pair.Leaf.IsCA || pair.Leaf.KeyUsage&x509.KeyUsageCertSign == 0 {
		return signing{}, fmt.Errorf("its first certificate may not sign others: %w", kernelbroker.ErrInvalid)
	}
	k := signing{certificate: pair.Leaf, key: key}
	if len(pair.Certificate) > 1 {
		if k.crossed, err = x509.ParseCertificate(pair.Certificate[1]); err != nil {
			return signing{}, fmt.Errorf("its second certificate: %w", err)
		}
	}
	return k, nil
}

// writeKeys writes one generation, for the broker alone.
func writeKeys(dir string, number int, k signing) error {
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
	path := filepath.Join(dir, fmt.Sprintf("ca-%04d.pem", number))
	return replace.File(path, append(mtls.EncodeCertificates(list), private...), 0o600)
}
