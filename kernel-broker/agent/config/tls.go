// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"path/filepath"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// TLS is how the node authenticates.
type TLS struct {
	Mode string `yaml:"mode"`
	// Dir and Token are for a certificate of the broker's authority.
	Dir   string `yaml:"dir"`
	Token string `yaml:"token"`
	// The others for one that the site puts there.
	Certificate string `yaml:"certificate"`
	Key         string `yaml:"key"`
	Authorities string `yaml:"authorities"`
}

// Issuers of certificates.
const (
	TLSOwn  = "own"
	TLSSite = "site"
	TLSNone = "none"
)

func defaultTLS() TLS {
	return TLS{ //nolint:gosec // G101: paths of files
		Mode: TLSOwn, Dir: "/var/lib/kernel-broker/tls", Token: "/etc/kernel-broker/token",
		Certificate: "/etc/kernel-broker/node.pem", Key: "/etc/kernel-broker/node.key", Authorities: "/etc/kernel-broker/ca.pem",
	}
}

func (t TLS) validate() error {
	if t.Mode != TLSOwn && t.Mode != TLSSite && t.Mode != TLSNone {
		return fmt.Errorf("tls.mode: %q is not own, site or none: %w", t.Mode, kb.ErrInvalid)
	}
	for key, path := range map[string]string{
		"dir": t.Dir, "token": t.Token, "certificate": t.Certificate, "key": t.Key, "authorities": t.Authorities,
	} {
		if !filepath.IsAbs(path) {
			return fmt.Errorf("tls.%s: %q is not an absolute path: %w", key, path, kb.ErrInvalid)
		}
	}
	return nil
}
