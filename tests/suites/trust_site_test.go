// SPDX-License-Identifier: Apache-2.0

//go:build lab

package suites

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"maps"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/mtls"
)

// siteAuthority is a site's own: a trusted root and an intermediate authority that signs.
type siteAuthority struct {
	t              *testing.T
	root, issuing  *x509.Certificate
	rootKey, inKey crypto.Signer
}

func newSiteAuthority(t *testing.T) *siteAuthority {
	s := &siteAuthority{t: t}
	ca := func(name string) *x509.Certificate {
		return &x509.Certificate{
			Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		}
	}
	top := ca("the site's root")
	s.rootKey = s.key()
	s.root = s.signed(top, top, s.rootKey.Public(), s.rootKey)
	s.inKey = s.key()
	s.issuing = s.signed(ca("the site's machines"), s.root, s.inKey.Public(), s.rootKey)
	return s
}

func (s *siteAuthority) key() crypto.Signer {
	s.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		s.t.Fatal(err)
	}
	return key
}

func (s *siteAuthority) signed(c, by *x509.Certificate, public crypto.PublicKey, key crypto.Signer) *x509.Certificate {
	s.t.Helper()
	var err error
	if c.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 64)); err != nil {
		s.t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, c, by, public, key)
	if err != nil {
		s.t.Fatal(err)
	}
	made, err := x509.ParseCertificate(der)
	if err != nil {
		s.t.Fatal(err)
	}
	return made
}

// issue makes a certificate from now on, for the name that a URI has; an empty
// one makes one as a web server's.
func (s *siteAuthority) issue(uri string, usage x509.ExtKeyUsage, lasts time.Duration) source {
	s.t.Helper()
	c := &x509.Certificate{
		Subject: pkix.Name{CommonName: "a machine"}, DNSNames: []string{"ctl", "n1"}, ExtKeyUsage: []x509.ExtKeyUsage{usage},
		KeyUsage: x509.KeyUsageDigitalSignature, NotBefore: time.Now(), NotAfter: time.Now().Add(lasts),
	}
	if uri != "" {
		u, err := url.Parse(uri)
		if err != nil {
			s.t.Fatal(err)
		}
		c.URIs = []*url.URL{u}
	}
	key := s.key()
	leaf := s.signed(c, s.issuing, key.Public(), s.inKey)
	pair := &tls.Certificate{Certificate: [][]byte{leaf.Raw, s.issuing.Raw}, PrivateKey: key, Leaf: leaf}
	return source{pair: pair, authorities: []*x509.Certificate{s.root}}
}

func (s *siteAuthority) node(name string, lasts time.Duration) source {
	s.t.Helper()
	return s.issue("kernel-broker://lab/node/"+name, x509.ExtKeyUsageClientAuth, lasts)
}

// put writes files like a site's tools: certificate with its chain, key, and trust anchors, each by a rename.
func (s *siteAuthority) put(have source, path func(string) string, names [3]string) {
	s.t.Helper()
	key, err := mtls.EncodeKey(have.pair.PrivateKey.(crypto.Signer))
	if err != nil {
		s.t.Fatal(err)
	}
	chain := mtls.EncodeCertificates([]*x509.Certificate{have.pair.Leaf, s.issuing})
	for i, text := range [][]byte{chain, key, mtls.EncodeCertificates(have.authorities)} {
		next := path(names[i] + ".next")
		if err := os.WriteFile(next, text, 0o600); err != nil {
			s.t.Fatal(err)
		}
		if err := os.Rename(next, path(names[i])); err != nil {
			s.t.Fatal(err)
		}
	}
}

// brokerFile is a file of the front-end's /etc/kernel-broker.
func (c *trust) brokerFile(name string) string {
	return filepath.Join(c.Dir(), "share/conf/kernel-broker", name)
}

var nodeNames = [3]string{"node.pem", "node.key", "ca.pem"} // the agent's defaults

// site moves brokers and agents to certificates of the site's own authority: they work like the broker's own, are
// reloaded when they change, expire, and can be revoked.
func (c *trust) site() {
	s := newSiteAuthority(c.t)
	ownN1 := c.stolen("n1")
	broker := s.issue("kernel-broker://lab/broker/ctl", x509.ExtKeyUsageServerAuth, 12*time.Hour)
	s.put(broker, c.brokerFile, [3]string{"broker.pem", "broker.key", "site.pem"})
	for _, name := range []string{"broker.pem", "broker.key", "site.pem"} {
		c.must("root", "chown", "slurm:slurm", "/etc/kernel-broker/"+name)
	}
	c.rewrite(c.brokerFile("broker.yaml"), "tls:\n", "tls:\n    mode: site\n    certificate: /etc/kernel-broker/broker.pem\n"+
		"    key: /etc/kernel-broker/broker.key\n    authorities: /etc/kernel-broker/site.pem\n")
	c.restartBroker()
	for _, n := range c.Nodes() {
		s.put(s.node(n.Name(), 12*time.Hour), n.Conf, nodeNames)
		c.rewrite(n.Conf("agent.yaml"), "node: ", "tls:\n    mode: site\nnode: ")
		if err := n.KillAgent(c.ctx); err != nil {
			c.t.Fatal(err)
		}
	}
	c.connected("both agents with the site's certificates", map[string]bool{"n1": true, "n2": true})
	id := c.sbatch("alice", "-N2", "--kernel-profile=mitgcm")
	c.waitJob(id, "COMPLETED")
	c.ranOn("alice", id, "mitgcm", 2)
	c.settled()

	thief := s.node("n1", time.Hour)
	c.refusedBy(c.hello(thief, "n2"), codes.PermissionDenied, `node "n1" speaks for node "n2"`)
	c.refused("root", []string{"authority"}, "kernelctl", "node", "token", "n1")
	own, err := ownN1.Certificate()
	if err != nil {
		c.t.Fatal(err)
	}
	for name, shown := range map[string]source{
		"of the broker's own authority, before": {own, thief.authorities},
		"of the site, for a web server":         s.issue("", x509.ExtKeyUsageClientAuth, time.Hour),
		"of another cluster's node":             s.issue("kernel-broker://other/node/n1", x509.ExtKeyUsageClientAuth, time.Hour),
		"of the broker":                         broker,
		"a node's, for servers":                 s.issue("kernel-broker://lab/node/n1", x509.ExtKeyUsageServerAuth, time.Hour),
		"that has ended":                        s.node("n1", -time.Second),
	} {
		if err := c.hello(shown, "n1"); status.Code(err) != codes.Unavailable {
			c.t.Errorf("a certificate %s: %v", name, err)
		}
	}

	// An expiring certificate disconnects the node; a new file reconnects it without a restart.
	for lasts := 20 * time.Second; !c.connectsWithin(s, lasts); {
		lasts *= 2 // a busy machine
	}
	c.connected("n1's certificate to end", map[string]bool{"n1": false, "n2": true})
	s.put(s.node("n1", 12*time.Hour), c.Node(1).Conf, nodeNames)
	c.connected("n1 with its next certificate", map[string]bool{"n1": true, "n2": true})

	// Revocation covers the node's current certificates, not later ones.
	stolen := s.node("n2", time.Hour)
	c.must("root", "kernelctl", "node", "revoke", "n2", "--reason", "disk stolen")
	c.connected("n2 to be away", map[string]bool{"n1": true, "n2": false})
	if err := c.hello(stolen, "n2"); status.Code(err) != codes.Unavailable {
		c.t.Errorf("revoked: %v", err)
	}
	begun := time.Now()
	c.wait(settleLimit, "a second in which a certificate can begin", func() bool { return time.Now().Unix() > begun.Unix() })
	s.put(s.node("n2", 12*time.Hour), c.Node(2).Conf, nodeNames)
	c.connected("n2 with a certificate from after that", map[string]bool{"n1": true, "n2": true})
	if err := c.hello(stolen, "n2"); status.Code(err) != codes.Unavailable {
		c.t.Errorf("revoked, after the node is back: %v", err)
	}
}

// connectsWithin reports whether n1 connects with a certificate of that lifetime. The broker is restarted, so that no
// older connection counts.
func (c *trust) connectsWithin(s *siteAuthority, lasts time.Duration) (there bool) {
	c.t.Helper()
	end := time.Now().Add(lasts)
	s.put(s.node("n1", lasts), c.Node(1).Conf, nodeNames)
	c.restartBroker()
	c.wait(settleLimit, "n1 with a certificate that ends soon", func() bool {
		there = c.agents()["n1"]
		return there || time.Now().After(end)
	})
	return there
}

// rewrite changes one place of a file.
func (c *trust) rewrite(path, from, to string) {
	c.t.Helper()
	text, err := os.ReadFile(path)
	if err != nil || strings.Count(string(text), from) != 1 {
		c.t.Fatalf("%v: not one %q in %s", err, from, text)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(text), from, to, 1)), 0o644); err != nil {
		c.t.Fatal(err)
	}
}

// connected waits until exactly the expected agents are connected.
func (c *trust) connected(what string, want map[string]bool) {
	c.t.Helper()
	c.wait(settleLimit, what, func() bool {
		return maps.Equal(c.agents(), want)
	})
}
