// SPDX-License-Identifier: Apache-2.0

package main

import (
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
func openTLS(ctx context.Context, c config, log *slog.Logger, kept store.Store) (*server.TLS, error) {
	if c.TLS.Mode == tlsNone {
		log.Warn("TLS IS OFF (tls.mode: none): nodes do not prove who they are, and what they are sent can be changed on its way",
			"listen", c.Listen, "privileged_agents", c.PrivilegedAgents)
		return nil, nil
	}
	source, authority, err := openSource(c)
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

func openSource(c config) (mtls.Source, *pki.Authority, error) {
	if c.TLS.Mode == tlsSite {
		return mtls.NewFiles(mtls.Paths{Certificate: c.TLS.Certificate, Key: c.TLS.Key, Authorities: c.TLS.Authorities}), nil, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, nil, fmt.Errorf("host name: %w", err)
	}
	short, _, _ := strings.Cut(host, ".")
	dir := c.TLS.Dir
	if dir == "" {
		dir = filepath.Join(c.DataDir, "ca")
	}
	authority, err := pki.OpenAuthority(pki.Options{
		Dir: dir, Public: filepath.Join(c.DataDir, "ca.pem"), Cluster: c.Cluster, Host: short, Lifetime: c.TLS.Lifetime,
	})
	if err != nil {
		return nil, nil, err
	}
	return authority, authority, nil
}
