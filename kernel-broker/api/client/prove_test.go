// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

type noMunge struct{}

func (noMunge) Encode(context.Context, []byte, time.Duration) (string, error) {
	return "", errors.New("munged is not there")
}

// Without munged a call fails before it starts, with the reason, which differs from an unreachable broker.
func TestWithoutMunge(t *testing.T) {
	options := append(prover{encoder: noMunge{}, cluster: "lab"}.options(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	conn, err := grpc.NewClient("passthrough:///127.0.0.1:1", options...)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	catalog := api.NewCatalogServiceClient(conn)
	check := func(what string, err error) {
		t.Helper()
		if status.Code(err) != codes.Unauthenticated {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err = catalog.ListProfiles(t.Context(), &api.ListProfilesRequest{})
	check("a call", err)
	fetch, err := catalog.FetchArtifact(t.Context(), &api.FetchArtifactRequest{})
	if err == nil {
		_, err = fetch.Recv()
	}
	check("a download", err)
	upload, err := catalog.UploadArtifact(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := upload.Send(&api.UploadArtifactRequest{}); !errors.Is(err, io.EOF) {
		t.Errorf("Send = %v", err)
	}
	_, err = upload.CloseAndRecv()
	check("an upload", err)
}

func TestProofIsForTheNetwork(t *testing.T) {
	c := DefaultConfig()
	asked := ""
	munge := func(socket string) Encoder { asked = socket; return noMunge{} }
	for address, want := range map[string]bool{"unix:///run/b.sock": false, "/run/b.sock": false, "head:7440": true, "10.0.0.1:7440": true, "rubbish": false} {
		if got := c.Proof(address, munge); (len(got) > 0) != want {
			t.Errorf("%s: %d options", address, len(got))
		}
	}
	if asked != "/run/munge/munge.socket.2" {
		t.Errorf("asked %q", asked)
	}
	// Where the local socket is among the addresses a call goes without munged; a broker over the network refuses it.
	conn, err := Dial("/nonexistent.sock,127.0.0.1:1", Trust{}, c.Proof("/nonexistent.sock,127.0.0.1:1", munge)...)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := api.NewCatalogServiceClient(conn).ListProfiles(t.Context(), &api.ListProfilesRequest{}); status.Code(err) != codes.Unavailable {
		t.Errorf("without munged, with a socket: %v", err)
	}
	c.Munge = ""
	if len(c.Proof("head:7440", munge)) > 0 || len(DefaultConfig().Proof("head:7440", nil)) > 0 {
		t.Error("a proof without munge")
	}
}
