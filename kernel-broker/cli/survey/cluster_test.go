// SPDX-License-Identifier: Apache-2.0

package survey

import (
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/kernelbroker/kernelbroker/kernel-broker/api/client"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/mtls"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/pki"
	"github.com/kernelbroker/kernelbroker/kernel-broker/doctor"
	"github.com/kernelbroker/kernelbroker/tests/support/catest"
)

// A login node whose client.yaml names another cluster, or has another cluster's authority, and a broker of cluster lab.
func TestWrongCluster(t *testing.T) {
	dir := t.TempDir()
	authority := func(cluster string) (*pki.Authority, string) {
		a := catest.Open(t, pki.Options{Cluster: cluster, Host: "front", Lifetime: time.Hour})
		list, err := a.Authorities()
		if err != nil {
			t.Fatal(err)
		}
		return a, write(t, dir+"/"+cluster+".pem", string(mtls.EncodeCertificates(list)), 0o644)
	}
	lab, labs := authority("lab")
	_, others := authority("test")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(mtls.ServerConfig(lab, "lab", func(mtls.Peer) error { return nil }))))
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	defer func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	address := listener.Addr().String()
	for name, c := range map[string]struct {
		ca, cluster string
		remedies    map[string]string
	}{
		"another cluster":     {labs, "test", map[string]string{"broker-answers": "set cluster of client.yaml", "cluster": "set the same cluster in broker.yaml and in client.yaml"}},
		"another's authority": {others, "lab", map[string]string{"broker-answers": "kernelctl setup client --fingerprint"}},
	} {
		s := &surveyor{site: &doctor.Site{}, Options: Options{Config: write(t, dir+"/client.yaml", "broker: "+address+"\nca: "+c.ca+"\ncluster: "+c.cluster+"\n", 0o644)}}
		s.Dial = func(*client.Config) (*grpc.ClientConn, string, error) {
			conn, err := client.Dial(s.client.Broker, s.client.Trust)
			if err == nil {
				t.Cleanup(func() { conn.Close() })
			}
			return conn, s.client.Broker, err
		}
		s.clientFile()
		s.broker(t.Context())
		s.port(t.Context())
		found := map[string]string{}
		for _, r := range doctor.Examine(s.site, nil) {
			for _, f := range r.Findings {
				found[f.Check] = f.Remedy
			}
		}
		for check, words := range c.remedies {
			if !strings.Contains(found[check], words) {
				t.Errorf("%s: %s has the remedy %q, want %q; %+v", name, check, found[check], words, s.site.Broker.Value)
			}
		}
		if len(found) != len(c.remedies) {
			t.Errorf("%s: found %v", name, found)
		}
	}
}
