// SPDX-License-Identifier: Apache-2.0

// Package catest makes authorities for tests, whose keys are sealed in a store in memory as the product seals them.
package catest

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/pki"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store/sealed"
	"github.com/kernelbroker/kernelbroker/tests/support/memstore"
)

// Open returns a new authority, which ends with the test.
func Open(t testing.TB, o pki.Options) *pki.Authority {
	t.Helper()
	authority, err := open(t.Context(), o, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return authority
}

func open(ctx context.Context, o pki.Options, dir string) (*pki.Authority, error) {
	secrets, err := sealed.Open(ctx, memstore.New(), sealed.Options{Cluster: o.Cluster, File: filepath.Join(dir, "key"), Begin: true})
	if err != nil {
		return nil, err
	}
	o.Secrets = secrets
	if _, err := pki.Found(ctx, o, ""); err != nil {
		return nil, err
	}
	return pki.OpenAuthority(ctx, o)
}
