// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/kernelbroker/kernelbroker/kernel-broker/api/client"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/mtls"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/catalog"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/atomicfile"
)

// setupClient gives a login node what it needs of the broker, or brings that up to date. The fingerprint is needed while the
// host has no authority to believe.
func (a *app) setupClient(ctx context.Context, fingerprint, snapshotFile string) error {
	text, err := os.ReadFile(a.config)
	written := !errors.Is(err, fs.ErrNotExist)
	if err != nil && written {
		return err
	}
	config, err := client.ParseConfig(a.config, text)
	if err != nil {
		return err
	}
	if !written {
		if config.Trust.CA, err = filepath.Abs(filepath.Join(filepath.Dir(a.config), "ca.pem")); err != nil {
			return err
		}
	}
	address := cmp.Or(a.broker, config.Broker)
	if client.Local(address) {
		return usageError{fmt.Errorf("the broker of %s is on this host and writes its files itself; on a login node name it with --broker HOST:PORT", address)}
	}
	var pin []grpc.DialOption
	if fingerprint != "" {
		if !mtls.IsFingerprint(fingerprint) {
			return usageError{fmt.Errorf("--fingerprint %q is not one that kernelctl authority show prints", fingerprint)}
		}
		pin = append(pin, grpc.WithTransportCredentials(credentials.NewTLS(mtls.PinnedConfig(fingerprint))))
	}
	conn, err := client.Dial(address, config.Trust, pin...)
	if err != nil {
		return usageError{err}
	}
	a.conn, a.address = conn, address
	authority, err := call(ctx, a, api.NewTrustServiceClient, api.TrustServiceClient.GetAuthority, &api.GetAuthorityRequest{})
	if err != nil && config.Trust.CA != "" {
		return err
	}
	snapshot, err := call(ctx, a, api.NewCatalogServiceClient, api.CatalogServiceClient.GetSnapshot, &api.GetSnapshotRequest{})
	if err != nil {
		return err
	}
	if err := catalog.CheckSnapshot(snapshot.GetSnapshot()); err != nil {
		return fmt.Errorf("broker %s: %w", address, err)
	}
	if config.Trust.CA != "" {
		if err := a.bring(config.Trust.CA, []byte(authority.GetAuthorities())); err != nil {
			return err
		}
	}
	if !written && config.Trust.CA != client.DefaultConfig().Trust.CA {
		text = setKey(text, "ca", config.Trust.CA)
	}
	if address != config.Broker {
		text = setKey(text, "broker", address)
		if config.Trust.Cluster == "" {
			text = setKey(text, "cluster", authority.GetCluster())
		}
	}
	if err := a.bring(a.config, text); err != nil {
		return err
	}
	return a.bringSnapshot(snapshotFile, snapshot.GetSnapshot())
}

// setKey sets one line of a settings file.
func setKey(text []byte, key, value string) []byte {
	line := fmt.Appendf(nil, "%s: %q", key, value)
	if of := regexp.MustCompile(`(?m)^` + key + `:.*$`); of.Match(text) {
		return of.ReplaceAllLiteral(text, line)
	}
	return append(append(text, line...), '\n')
}

// bring writes a file that everybody may read, if it has another content.
func (a *app) bring(path string, content []byte) error {
	if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, content) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := atomicfile.Write(path, content, 0o644); err != nil {
		return err
	}
	a.say("%s written", path)
	return nil
}

// bringSnapshot leaves a snapshot alone that differs in its time only.
func (a *app) bringSnapshot(path, text string) error {
	have, err := os.ReadFile(path)
	if err == nil && catalog.SnapshotBody(string(have)) == catalog.SnapshotBody(text) {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return a.bring(path, []byte(text))
}
