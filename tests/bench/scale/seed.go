// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/mtls"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/pki"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store/etcdserver"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store/etcdstore"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store/sealed"
	"github.com/kernelbroker/kernelbroker/tests/emulated"
)

// identity is a node's key and certificate, in memory.
type identity struct {
	own         *tls.Certificate
	authorities []*x509.Certificate
}

// Certificate implements mtls.Source.
func (i *identity) Certificate() (*tls.Certificate, error) { return i.own, nil }

// Authorities implements mtls.Source.
func (i *identity) Authorities() ([]*x509.Certificate, error) { return i.authorities, nil }

// enrol gives every node a key and a certificate, on record in the data of a broker that does not run yet.
func enrol(ctx context.Context, data string, names []string) (all []*identity, err error) {
	server, err := etcdserver.Start(ctx, etcdserver.Config{Dir: filepath.Join(data, "etcd"), Logger: quiet})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	kept, err := etcdstore.Open(ctx, etcdstore.Config{Endpoints: []string{server.Endpoint()}, Cluster: cluster, Logger: quiet})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, kept.Close()) }()
	return enrolIn(ctx, kept, filepath.Join(data, keyFile), names)
}

// keyFile has the key of the store's secrets, in the data folder unless the settings say otherwise.
const keyFile = "store.key"

var quiet = slog.New(slog.DiscardHandler)

func enrolIn(ctx context.Context, kept *etcdstore.Store, key string, names []string) (all []*identity, err error) {
	options := pki.Options{Cluster: cluster, Host: "ctl", Lifetime: 30 * 24 * time.Hour}
	options.Secrets, err = sealed.Open(ctx, kept, sealed.Options{Cluster: cluster, File: key, Begin: true})
	if err == nil {
		_, err = pki.Found(ctx, options, "")
	}
	if err != nil {
		return nil, err
	}
	authority, err := pki.OpenAuthority(ctx, options)
	if err != nil {
		return nil, err
	}
	registry, err := pki.OpenRegistry(ctx, pki.RegistryOptions{Store: kept, Cluster: cluster, Authority: authority, Log: quiet})
	if err != nil {
		return nil, err
	}
	all = make([]*identity, len(names))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(64)
	for i, name := range names {
		group.Go(func() error {
			var err error
			all[i], err = enrolOne(ctx, registry, name)
			return err
		})
	}
	return all, group.Wait()
}

func enrolOne(ctx context.Context, registry *pki.Registry, name string) (*identity, error) {
	token, _, err := registry.CreateToken(ctx, name, time.Hour, "kb-bench")
	if err != nil {
		return nil, err
	}
	key, err := mtls.NewKey()
	if err != nil {
		return nil, err
	}
	request, err := mtls.NewRequest(key)
	if err != nil {
		return nil, err
	}
	granted, err := registry.Enrol(ctx, name, token.Secret, request)
	if err != nil {
		return nil, err
	}
	own := &tls.Certificate{PrivateKey: key, Leaf: granted.Chain[0]}
	for _, link := range granted.Chain {
		own.Certificate = append(own.Certificate, link.Raw)
	}
	return &identity{own: own, authorities: granted.Authorities}, nil
}

// drivers are what the nodes need of a kernel.
var drivers = []string{"ext4", "virtio_blk", "virtio_net"}

// register puts kernels into the broker's catalog, as soon as it serves.
func register(ctx context.Context, conn grpc.ClientConnInterface, names ...string) error {
	catalog := api.NewCatalogServiceClient(conn)
	for _, name := range names {
		k := emulated.KernelNamed(name)
		image := []byte(k.BuildID + "\n" + k.Release + "\n")
		sum := sha256.Sum256(image)
		digest := "sha256:" + hex.EncodeToString(sum[:])
		upload, err := catalog.UploadArtifact(ctx, grpc.WaitForReady(true))
		if err != nil {
			return fmt.Errorf("broker: %w", err)
		}
		if err := upload.Send(&api.UploadArtifactRequest{Digest: digest, Size: uint64(len(image)), Data: image}); err != nil {
			return fmt.Errorf("kernel %s: %w", name, err)
		}
		if _, err := upload.CloseAndRecv(); err != nil {
			return fmt.Errorf("kernel %s: %w", name, err)
		}
		if _, err := catalog.ApplyProfile(ctx, &api.ApplyProfileRequest{RequestId: name, Reason: "kb-bench", Profile: &api.Profile{
			Name: name, Application: name, Description: name, DefaultVersion: 1,
			Reuse: api.ReusePolicy_REUSE_POLICY_SAME_PROFILE, Fallback: api.FallbackPolicy_FALLBACK_POLICY_HOLD,
			BootAttempts: 2, BootTimeoutMs: 120_000,
			Versions: []*api.ProfileVersion{{Kernel: &api.KernelSpec{
				Profile: name, Version: 1, ImageDigest: digest, ImageSize: uint64(len(image)),
				BuildId: k.BuildID, Release: k.Release, Architecture: "x86_64", Drivers: drivers,
			}}},
		}}); err != nil {
			return fmt.Errorf("profile %s: %w", name, err)
		}
	}
	return nil
}
