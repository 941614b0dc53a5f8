// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/mtls"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/pki"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/server"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store/sealed"
)

// tlsConfig is tls in broker.yaml.
type tlsConfig struct {
	Mode        string        `yaml:"mode"`
	Dir         string        `yaml:"dir"`
	Lifetime    time.Duration `yaml:"lifetime"`
	Certificate string        `yaml:"certificate"`
	Key         string        `yaml:"key"`
	Authorities string        `yaml:"authorities"`
}

// Who signs certificates.
const (
	tlsOwn  = "own"
	tlsSite = "site"
	tlsNone = "none"
)

// A certificate has to last for a few turns of an agent's work.
const minLifetime = 10 * time.Second

func (c config) validateTLS() error {
	switch c.TLS.Mode {
	case tlsNone:
		return nil
	case tlsSite:
		// In the order of the sample, so that the same file is always told the same.
		for _, file := range []struct{ key, path string }{
			{"certificate", c.TLS.Certificate}, {"key", c.TLS.Key}, {"authorities", c.TLS.Authorities},
		} {
			if !filepath.IsAbs(file.path) {
				return fmt.Errorf("tls.%s: with mode site an absolute path is needed, not %q", file.key, file.path)
			}
		}
	case tlsOwn:
	default:
		return fmt.Errorf("tls.mode: %q is none of own, site and none", c.TLS.Mode)
	}
	if c.TLS.Dir != "" && !filepath.IsAbs(c.TLS.Dir) {
		return fmt.Errorf("tls.dir: %q is not an absolute path", c.TLS.Dir)
	}
	if c.TLS.Lifetime < minLifetime {
		return fmt.Errorf("tls.lifetime: %v is shorter than %v", c.TLS.Lifetime, minLifetime)
	}
	return mtls.ValidateCluster(c.Cluster)
}

// openTLS returns how callers over the network prove who they are; nil where
// they do not.
func openTLS(ctx context.Context, c config, log *slog.Logger, kept store.Store, secrets *sealed.Box) (*server.TLS, error) {
	if c.TLS.Mode == tlsNone {
		log.Warn("TLS IS OFF (tls.mode: none): nodes do not prove who they are, and what they are sent can be changed on its way",
			"listen", c.Listen, "privileged_agents", c.PrivilegedAgents)
		return nil, nil
	}
	if err := foundAuthority(ctx, c, log, secrets); err != nil {
		return nil, err
	}
	source, authority, err := openSource(ctx, c, secrets)
	if err != nil {
		return nil, err
	}
	// What cannot work is found out now and not by the first node.
	if _, err := source.Certificate(); err != nil {
		return nil, err
	}
	if _, err := source.Authorities(); err != nil {
		return nil, err
	}
	registry, err := pki.OpenRegistry(ctx, pki.RegistryOptions{Store: kept, Cluster: c.Cluster, Authority: authority, Log: log})
	if err != nil {
		return nil, err
	}
	return &server.TLS{Source: source, Registry: registry}, nil
}

// foundAuthority makes the broker's own authority where there is none, and takes in that of an earlier version.
func foundAuthority(ctx context.Context, c config, log *slog.Logger, secrets *sealed.Box) error {
	if c.TLS.Mode != tlsOwn {
		return nil
	}
	o, err := authorityOptions(c, secrets)
	if err != nil {
		return err
	}
	dir := cmp.Or(c.TLS.Dir, filepath.Join(c.DataDir, "ca"))
	files, err := pki.Found(ctx, o, dir)
	if err == nil && files > 0 {
		log.Warn("the authority's keys are in the store from now on, sealed by store_key_file; remove the folder when the broker has worked without it for a while",
			"folder", dir, "keys", files, "store_key_file", c.storeKeyFile())
	}
	return err
}

// openSource has what this broker shows and trusts. kb.ErrNotFound: no broker has made the authority yet.
func openSource(ctx context.Context, c config, secrets *sealed.Box) (mtls.Source, *pki.Authority, error) {
	if c.TLS.Mode == tlsSite {
		return mtls.NewFiles(mtls.Paths{Certificate: c.TLS.Certificate, Key: c.TLS.Key, Authorities: c.TLS.Authorities}), nil, nil
	}
	o, err := authorityOptions(c, secrets)
	if err != nil {
		return nil, nil, err
	}
	authority, err := pki.OpenAuthority(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	return authority, authority, nil
}

func authorityOptions(c config, secrets *sealed.Box) (pki.Options, error) {
	host, err := os.Hostname()
	if err != nil {
		return pki.Options{}, fmt.Errorf("host name: %w", err)
	}
	short, _, _ := strings.Cut(host, ".")
	return pki.Options{Secrets: secrets, Public: filepath.Join(c.DataDir, "ca.pem"), Cluster: c.Cluster, Host: short, Lifetime: c.TLS.Lifetime}, nil
}
