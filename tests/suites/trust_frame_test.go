// SPDX-License-Identifier: Apache-2.0

//go:build lab

package suites

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	transport "google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/mtls"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/pki"
	"github.com/kernelbroker/kernelbroker/tests/support/catest"
	"github.com/kernelbroker/kernelbroker/tests/support/memstore"
)

// trust is a cluster that is attacked.
type trust struct {
	*cluster
	stranger *pki.Registry // another cluster's, made when it is wanted
}

// over connects to the broker's port from within the lab's network.
func (c *trust) over(security transport.TransportCredentials) *grpc.ClientConn {
	c.t.Helper()
	conn, err := grpc.NewClient("passthrough:///broker", grpc.WithTransportCredentials(security),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return c.dial(overNetwork) }))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = conn.Close() }) // refused ones may be closed already
	return conn
}

// hello returns the broker's answer to a client that claims to be a node, never to be its own: the real agent's stream
// would end.
func (c *trust) hello(source mtls.Source, node string) error {
	c.t.Helper()
	return c.helloOver(c.over(transport.NewTLS(mtls.ClientConfig(source, "lab"))), node)
}

func (c *trust) plainHello(node string) error {
	c.t.Helper()
	return c.helloOver(c.over(insecure.NewCredentials()), node)
}

func (c *trust) helloOver(conn *grpc.ClientConn, node string) error {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.ctx, switchLimit)
	defer cancel()
	stream, err := api.NewNodeServiceClient(conn).Connect(ctx)
	if err != nil {
		return err
	}
	// A refused stream ends under the Send, and Recv has the reason.
	_ = stream.Send(&api.ConnectRequest{Message: &api.ConnectRequest_Hello{Hello: &api.Hello{
		Node: node, BootId: strings.Repeat("0", 32), BuildId: strings.Repeat("0", 40), Release: "6.1.0",
	}}})
	_, err = stream.Recv()
	return err
}

func (c *trust) refusedBy(err error, code codes.Code, words string) {
	c.t.Helper()
	if status.Code(err) != code || !strings.Contains(status.Convert(err).Message(), words) {
		c.t.Errorf("%v, want %v with %q", err, code, words)
	}
}

// onDisk reads a file of a node's disk.
func (c *trust) onDisk(node, name string) string {
	c.t.Helper()
	return c.must("root", "cat", "/run/lab/nodes/"+node+"/share/state/tls/"+name) + "\n"
}

// stolen is a copy of the files on a node's disk.
func (c *trust) stolen(node string) *mtls.Files {
	c.t.Helper()
	paths := mtls.NodePaths(c.t.TempDir())
	for path, name := range map[string]string{paths.Key: "node.pem", paths.Authorities: "ca.pem"} {
		if err := os.WriteFile(path, []byte(c.onDisk(node, name)), 0o600); err != nil {
			c.t.Fatal(err)
		}
	}
	return mtls.NewFiles(paths)
}

// source is a client's identity and its trust anchors.
type source struct {
	pair        *tls.Certificate
	authorities []*x509.Certificate
}

func (s source) Certificate() (*tls.Certificate, error)    { return s.pair, nil }
func (s source) Authorities() ([]*x509.Certificate, error) { return s.authorities, nil }

// anybody is a client without a certificate.
func (c *trust) anybody() mtls.Source { return source{authorities: c.authorities()} }

// withoutKey shows a node's certificate, which is no secret, with another key.
func (c *trust) withoutKey(node string) mtls.Source {
	c.t.Helper()
	key, err := mtls.NewKey()
	if err != nil {
		c.t.Fatal(err)
	}
	list, err := mtls.ParseCertificates([]byte(c.onDisk(node, "node.pem")))
	if err != nil {
		c.t.Fatal(err)
	}
	return source{pair: &tls.Certificate{Certificate: [][]byte{list[0].Raw}, PrivateKey: key, Leaf: list[0]}, authorities: c.authorities()}
}

// foreign has a certificate of an authority that names cluster and nodes as
// ours does.
func (c *trust) foreign(node string) mtls.Source {
	c.t.Helper()
	c.foreignAuthority()
	token, _, err := c.stranger.CreateToken(c.ctx, node, time.Hour, "stranger")
	if err != nil {
		c.t.Fatal(err)
	}
	key, err := mtls.NewKey()
	if err != nil {
		c.t.Fatal(err)
	}
	request, err := mtls.NewRequest(key)
	if err != nil {
		c.t.Fatal(err)
	}
	got, err := c.stranger.Enrol(c.ctx, node, token.Secret, request)
	if err != nil {
		c.t.Fatal(err)
	}
	pair := &tls.Certificate{PrivateKey: key, Leaf: got.Chain[0]}
	for _, link := range got.Chain {
		pair.Certificate = append(pair.Certificate, link.Raw)
	}
	return source{pair: pair, authorities: c.authorities()}
}

func (c *trust) foreignAuthority() *x509.Certificate {
	c.t.Helper()
	authority := catest.Open(c.t, pki.Options{Cluster: "lab", Host: "ctl", Lifetime: time.Hour})
	var err error
	c.stranger, err = pki.OpenRegistry(c.ctx, pki.RegistryOptions{
		Store: memstore.New(), Cluster: "lab", Authority: authority, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		c.t.Fatal(err)
	}
	list, err := authority.Authorities()
	if err != nil {
		c.t.Fatal(err)
	}
	return list[0]
}

// authorities are the broker's, oldest first.
func (c *trust) authorities() []*x509.Certificate {
	c.t.Helper()
	list, err := mtls.ParseCertificates([]byte(c.must("root", "kernelctl", "authority", "show") + "\n"))
	if err != nil {
		c.t.Fatal(err)
	}
	return list
}

// certificate is the one that is on a node's disk now.
func (c *trust) certificate(node string) *x509.Certificate {
	c.t.Helper()
	list, err := mtls.ParseCertificates([]byte(c.onDisk(node, "node.pem")))
	if err != nil {
		c.t.Fatal(err)
	}
	return list[0]
}

// token makes one as an administrator does.
func (c *trust) token(node, ttl string) mtls.Token {
	c.t.Helper()
	token, err := mtls.ParseToken(c.must("root", "kernelctl", "node", "token", node, "--ttl", ttl))
	if err != nil {
		c.t.Fatal(err)
	}
	return token
}

// enrol shows a token for a fresh key.
func (c *trust) enrol(token mtls.Token, node string) (*api.EnrolResponse, error) {
	c.t.Helper()
	key, err := mtls.NewKey()
	if err != nil {
		c.t.Fatal(err)
	}
	request, err := mtls.NewRequest(key)
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(c.ctx, switchLimit)
	defer cancel()
	return api.NewTrustServiceClient(c.over(transport.NewTLS(mtls.PinnedConfig(token.Fingerprint)))).
		Enrol(ctx, &api.EnrolRequest{Node: node, Secret: token.Secret, CertificateRequest: request})
}

// keyLines are the lines of a private key in a file.
func keyLines(t *testing.T, text string) []string {
	t.Helper()
	for block, rest := pem.Decode([]byte(text)); block != nil; block, rest = pem.Decode(rest) {
		if strings.HasSuffix(block.Type, "PRIVATE KEY") {
			return strings.Split(strings.TrimSpace(string(pem.EncodeToMemory(block))), "\n")[1:3]
		}
	}
	t.Fatal("no key in it")
	return nil
}

// searchScript prints where a pattern of a file occurs: in the visible data of processes, and below the given folders.
const searchScript = `patterns=$1; shift
for f in /proc/[0-9]*/cmdline /proc/[0-9]*/environ; do
	tr '\0' '\n' <"$f" 2>/dev/null | grep -q -F -f "$patterns" && echo "$f"
done
[ $# = 0 ] || grep -r -l -F -f "$patterns" "$@" 2>/dev/null
exit 0`

// found searches the front-end and both nodes.
func (c *trust) found(patterns []string) string {
	c.t.Helper()
	text := []byte(strings.Join(patterns, "\n") + "\n")
	if err := os.WriteFile(filepath.Join(c.Dir(), "patterns"), text, 0o600); err != nil {
		c.t.Fatal(err)
	}
	out := c.must("root", "/bin/sh", "-c", searchScript, "sh", "/run/lab/patterns",
		"/var/log", "/var/spool", "/var/lib/slurm", "/var/lib/kernel-broker/etcd", "/var/lib/kernel-broker/audit", "/home", "/tmp", "/etc/slurm",
		"/run/lab/consoles", "/run/lab/nodes/n1/share/log", "/run/lab/nodes/n2/share/log")
	for _, n := range c.Nodes() {
		if err := os.WriteFile(n.Conf("patterns"), text, 0o600); err != nil {
			c.t.Fatal(err)
		}
		r, err := n.Exec(c.ctx, "/bin/sh", "-c", searchScript, "sh", "/etc/kernel-broker/patterns", "/tmp", "/var/log", "/var/spool")
		if err != nil || r.Exit != 0 {
			c.t.Fatalf("search on %s: %v: %s", n.Name(), err, r.Stderr)
		}
		if text := strings.TrimSpace(r.Stdout); text != "" {
			out += "\n" + n.Name() + ": " + strings.ReplaceAll(text, "\n", "\n"+n.Name()+": ")
		}
		if err := os.Remove(n.Conf("patterns")); err != nil {
			c.t.Fatal(err)
		}
	}
	return strings.TrimSpace(out)
}
