package rpc_test

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
	"github.com/kernelbroker/kernelbroker/kernel-broker/audit"
	"github.com/kernelbroker/kernelbroker/kernel-broker/client"
	"github.com/kernelbroker/kernelbroker/kernel-broker/credential"
	"github.com/kernelbroker/kernelbroker/kernel-broker/guard"
	"github.com/kernelbroker/kernelbroker/kernel-broker/limit"
	"github.com/kernelbroker/kernelbroker/kernel-broker/munge"
	"github.com/kernelbroker/kernelbroker/kernel-broker/munge/mungetest"
	"github.com/kernelbroker/kernelbroker/kernel-broker/people"
	"github.com/kernelbroker/kernelbroker/kernel-broker/rpc"
)

// BenchmarkAuthorisation is what it costs to know who calls, judge it, and
// record it: a call over the local socket without a policy and a record, with
// them, and over the network with real munge; and one that changes something,
// whose record is on the disk first. The last figure is the median.
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
	if err := os.WriteFile(file, []byte(townPolicy), 0o644); err != nil {
		b.Fatal(err)
	}
	g, err := guard.New(guard.Options{File: file, Always: []uint32{0}, People: people.New(), Record: record, Log: quiet})
	if err != nil {
		b.Fatal(err)
	}
	verifier := credential.NewVerifier(credential.Options{Decoder: notary{munge.New(munged.Socket)}, Cluster: cluster})
	// The limits are asked as ever, and have room.
	limits := rpc.DefaultLimits()
	limits.Users = limit.Rate{PerSecond: 1e6, Burst: 1e6}
	plain := serve(b, func(o *rpc.Options) { o.Log, o.Limits = quiet, limits }, both)
	whole := serve(b, func(o *rpc.Options) { o.Log, o.Guard, o.Proof, o.Limits = quiet, g, verifier, limits }, both)
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
	network := dial(b, whole.address, client.Prove(munge.New(munged.Socket), cluster)...)
	for _, c := range []struct {
		name string
		conn *grpc.ClientConn
		call func(*grpc.ClientConn) error
	}{
		{"look/switched-off", plain.local(b), check}, {"look/socket", whole.local(b), check}, {"look/munge", network, check},
		{"judged/switched-off", plain.local(b), look}, {"judged/socket", whole.local(b), look},
		{"change/switched-off", plain.local(b), change}, {"change/socket", whole.local(b), change},
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
