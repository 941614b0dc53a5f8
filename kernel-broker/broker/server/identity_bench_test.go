// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/audit"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/authz"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/credential"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/munge"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/nss"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/server"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/limit"
	"github.com/kernelbroker/kernelbroker/tests/support/mungetest"
)

// benchPolicy lets root change something from elsewhere, too.
const benchPolicy = "administrators:\n  users: [root]\n  from: [local, 127.0.0.1]\n"

// BenchmarkAuthorisation is what it costs to know who calls, judge it, and
// record it: a call over the local socket without a policy and a record, with
// them, and over the network with real munge; and one that changes something,
// whose record is on the disk first. The last figure is the median. make
// bench-authorisation compares the ways by the parts of their names.
func BenchmarkAuthorisation(b *testing.B) {
	munged := mungetest.Start(b)
	quiet := slog.New(slog.DiscardHandler)
	record, err := audit.Open(audit.Options{Dir: filepath.Join(b.TempDir(), "audit"), Log: quiet})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := record.Close(); err != nil {
			b.Error(err)
		}
	})
	file := filepath.Join(b.TempDir(), "policy.yaml")
	if err := os.WriteFile(file, []byte(benchPolicy), 0o644); err != nil {
		b.Fatal(err)
	}
	g, err := authz.New(authz.Options{File: file, Always: []uint32{0}, Users: nss.New(), Record: record, Log: quiet})
	if err != nil {
		b.Fatal(err)
	}
	verifier := credential.NewVerifier(credential.Options{Decoder: munge.New(munged.Socket), Cluster: cluster})
	// The limits are asked as ever, and have room.
	limits := server.DefaultLimits()
	limits.UserRate, limits.UserBurst, limits.Changes = 1e6, 1e6, limit.Rate{PerSecond: 1e6, Burst: 1e6}
	plain := serve(b, func(o *server.Options) { o.Log, o.Limits = quiet, limits }, both)
	whole := serve(b, func(o *server.Options) { o.Log, o.Authorizer, o.Verifier, o.Limits = quiet, g, verifier, limits }, both)
	check := func(conn *grpc.ClientConn) error {
		_, err := api.NewAllocationServiceClient(conn).GetJob(b.Context(), &api.GetJobRequest{JobId: 1})
		return err
	}
	look := func(conn *grpc.ClientConn) error {
		_, err := api.NewCatalogServiceClient(conn).GetArtifact(b.Context(), &api.GetArtifactRequest{Digest: digestOf(nil)})
		return err
	}
	// Of a profile that is not there, so that it is done each time. What would
	// change something is on the disk before it is done.
	change := func(conn *grpc.ClientConn) error {
		_, err := api.NewCatalogServiceClient(conn).RetireProfile(b.Context(), &api.RetireProfileRequest{RequestId: "1", Name: "nothing"})
		if status.Code(err) == codes.NotFound {
			return nil
		}
		return fmt.Errorf("a profile that is not there is retired: %w", err)
	}
	network := dial(b, whole.address, proof(whole.address, munge.New(munged.Socket))...)
	for _, c := range []struct {
		name string
		conn *grpc.ClientConn
		call func(*grpc.ClientConn) error
	}{
		{"call=read/way=off", plain.local(b), check}, {"call=read/way=socket", whole.local(b), check}, {"call=read/way=munge", network, check},
		{"call=judged/way=off", plain.local(b), look}, {"call=judged/way=socket", whole.local(b), look},
		{"call=change/way=off", plain.local(b), change}, {"call=change/way=socket", whole.local(b), change}, {"call=change/way=munge", network, change},
	} {
		b.Run(c.name, func(b *testing.B) {
			var took []time.Duration
			for b.Loop() {
				begin := time.Now()
				if err := c.call(c.conn); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(begin))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "median-us/op")
		})
	}
}
