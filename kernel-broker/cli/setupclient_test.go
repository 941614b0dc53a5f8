// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/mtls"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/pki"
	"github.com/kernelbroker/kernelbroker/tests/support/catest"
)

// distant is a broker on another host.
type distant struct {
	api.UnimplementedTrustServiceServer
	api.UnimplementedCatalogServiceServer
	authority         *pki.Authority
	snapshot          string
	address, authored string // where it listens, and its own ca.pem
}

func (d *distant) GetAuthority(context.Context, *api.GetAuthorityRequest) (*api.GetAuthorityResponse, error) {
	list, err := d.authority.Authorities()
	return &api.GetAuthorityResponse{Cluster: "lab", Authorities: string(mtls.EncodeCertificates(list))}, err
}

func (d *distant) GetSnapshot(context.Context, *api.GetSnapshotRequest) (*api.GetSnapshotResponse, error) {
	return &api.GetSnapshotResponse{Snapshot: d.snapshot}, nil
}

func aDistantBroker(t *testing.T) *distant {
	t.Helper()
	d := &distant{authored: filepath.Join(t.TempDir(), "ca.pem")}
	d.authority = catest.Open(t, pki.Options{Public: d.authored, Cluster: "lab", Host: "ctl", Lifetime: time.Hour})
	accept := func(mtls.Peer) error { return errors.New("no node is expected") }
	served := grpc.NewServer(grpc.Creds(credentials.NewTLS(mtls.ServerConfig(d.authority, "lab", accept))))
	api.RegisterTrustServiceServer(served, d)
	api.RegisterCatalogServiceServer(served, d)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d.address = listener.Addr().String()
	var serving sync.WaitGroup
	serving.Go(func() { _ = served.Serve(listener) }) // it ends with Stop
	t.Cleanup(func() { served.Stop(); serving.Wait() })
	return d
}

func snapshotAt(hour, profiles string) string {
	return "kernel-broker-snapshot 1\ngenerated 2026-11-30T" + hour + ":00:00Z\n" + profiles + "end\n"
}

// A login node needs the broker's address and a fingerprint once; afterwards its files follow the broker's.
func TestSetupClient(t *testing.T) {
	d, other := aDistantBroker(t), aDistantBroker(t)
	d.snapshot = snapshotAt("10", "profile mitgcm 1 1 available\n")
	dir := t.TempDir()
	config, ca, snapshot := filepath.Join(dir, "client.yaml"), filepath.Join(dir, "ca.pem"), filepath.Join(dir, "lib", "catalog.snapshot")
	setup := func(more ...string) (int, string) {
		code, _, said := runAt(t, "", append([]string{"setup", "client", "--config", config, "--snapshot", snapshot}, more...)...)
		return code, said
	}
	is := func(when, path, want string) {
		t.Helper()
		if have, err := os.ReadFile(path); err != nil || string(have) != want {
			t.Errorf("%s: %s is %q, %v", when, filepath.Base(path), have, err)
		}
	}
	for name, c := range map[string]struct {
		more []string
		code int
		said string
	}{
		"the broker's own host": {nil, exitUsage, "on a login node name it with --broker HOST:PORT"},
		"nobody to believe":     {[]string{"--broker", d.address}, exitUnavailable, "ca.pem"},
		"no fingerprint":        {[]string{"--broker", d.address, "--fingerprint", "abc"}, exitUsage, `--fingerprint "abc" is not one`},
		"another's fingerprint": {[]string{"--broker", d.address, "--fingerprint", other.authority.Fingerprint()}, exitUnavailable, "not the broker with that fingerprint"},
	} {
		if code, said := setup(c.more...); code != c.code || !strings.Contains(said, c.said) {
			t.Errorf("%s: exit %d, %s", name, code, said)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%s: it leaves %v, %v", name, left, err)
		}
	}
	if code, said := setup("--broker", d.address, "--fingerprint", d.authority.Fingerprint()); code != 0 || strings.Count(said, " written\n") != 3 {
		t.Fatalf("exit %d, %s", code, said)
	}
	is("at first", config, "ca: \""+ca+"\"\nbroker: \""+d.address+"\"\ncluster: \"lab\"\n")
	authorities, err := os.ReadFile(d.authored)
	if err != nil {
		t.Fatal(err)
	}
	is("at first", ca, string(authorities))
	is("at first", snapshot, d.snapshot)
	old := d.snapshot
	d.snapshot = snapshotAt("11", "profile mitgcm 1 1 available\n")
	if code, said := setup(); code != 0 || said != "" {
		t.Errorf("nothing new: exit %d, %s", code, said)
	}
	is("nothing new", snapshot, old)
	if _, err := d.authority.Rotate(t.Context(), time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	d.snapshot = snapshotAt("12", "profile mitgcm 2 1,2 available\n")
	if code, said := setup(); code != 0 || strings.Count(said, " written\n") != 2 {
		t.Errorf("a rotation and a version: exit %d, %s", code, said)
	}
	is("a version", snapshot, d.snapshot)
	if now, err := os.ReadFile(ca); err != nil || strings.Count(string(now), "BEGIN CERTIFICATE") != 2 {
		t.Errorf("after the rotation: %s, %v", now, err)
	}
	d.snapshot = "<html>"
	if code, said := setup(); code != exitRefused || !strings.Contains(said, "no snapshot of a catalog") {
		t.Errorf("rubbish: exit %d, %s", code, said)
	}
	is("rubbish", snapshot, snapshotAt("12", "profile mitgcm 2 1,2 available\n"))
}

// The package's client.yaml names the socket of the broker's own host; only what differs is changed in it.
func TestSetupClientKeepsSettings(t *testing.T) {
	d := aDistantBroker(t)
	d.snapshot = snapshotAt("10", "")
	dir := t.TempDir()
	config, ca := filepath.Join(dir, "client.yaml"), filepath.Join(dir, "authorities")
	shipped, err := os.ReadFile("../api/client/client.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(shipped), "ca: /etc/kernel-broker/ca.pem", "ca: "+ca, 1)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	code, _, said := runAt(t, "", "setup", "client", "--config", config, "--snapshot", filepath.Join(dir, "s"), "--broker", d.address, "--fingerprint", d.authority.Fingerprint())
	want := strings.NewReplacer("broker: unix:///run/kernel-broker/broker.sock", `broker: "`+d.address+`"`, `cluster: ""`, `cluster: "lab"`).Replace(text)
	if have, err := os.ReadFile(config); code != 0 || err != nil || string(have) != want {
		t.Errorf("exit %d, %s: client.yaml is\n%s\n%v", code, said, have, err)
	}
}
