// SPDX-License-Identifier: Apache-2.0

package etcdtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority signs the certificates of servers and clients.
type Authority struct {
	File string // its certificate

	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

// NewAuthority makes one.
func NewAuthority(t *testing.T) *Authority {
	t.Helper()
	template := &x509.Certificate{Subject: pkix.Name{CommonName: "test"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	a := &Authority{File: filepath.Join(t.TempDir(), "ca.pem")}
	a.key = newKey(t)
	a.cert = a.sign(t, template, template, a.key)
	write(t, a.File, "CERTIFICATE", a.cert.Raw, 0o644)
	return a
}

// Issue writes NAME.pem and NAME.key into a folder: a server's for the given names and addresses, a client's without any.
func (a *Authority) Issue(t *testing.T, dir, name string, hosts ...string) (certificate, key string) {
	t.Helper()
	return a.IssueUntil(t, time.Now().Add(time.Hour), dir, name, hosts...)
}

// IssueUntil is Issue with the certificate's end.
func (a *Authority) IssueUntil(t *testing.T, end time.Time, dir, name string, hosts ...string) (certificate, key string) {
	t.Helper()
	// A server of etcd's also is a client, of its own gateway.
	template := &x509.Certificate{Subject: pkix.Name{CommonName: name}, NotAfter: end, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	if len(hosts) > 0 {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	own := newKey(t)
	cert := a.sign(t, template, a.cert, own)
	der, err := x509.MarshalPKCS8PrivateKey(own)
	if err != nil {
		t.Fatal(err)
	}
	certificate, key = filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".key")
	write(t, certificate, "CERTIFICATE", cert.Raw, 0o644)
	write(t, key, "PRIVATE KEY", der, 0o600)
	return certificate, key
}

// Client has a certificate of the authority, which names no user of etcd.
func (a *Authority) Client(t *testing.T) *tls.Config {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(a.Issue(t, t.TempDir(), "administrator"))
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{RootCAs: a.Pool(), Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
}

// Pool has the authority.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

func (a *Authority) sign(t *testing.T, template, parent *x509.Certificate, of *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	var err error
	if template.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62)); err != nil {
		t.Fatal(err)
	}
	template.NotBefore = time.Now().Add(-24 * time.Hour)
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(time.Hour)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &of.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func write(t *testing.T, path, kind string, der []byte, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), mode); err != nil {
		t.Fatal(err)
	}
}

// As has a client's certificate that names a user of etcd.
func (a *Authority) As(t *testing.T, user string) func() (*tls.Config, error) {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(a.Issue(t, t.TempDir(), user))
	return func() (*tls.Config, error) {
		return &tls.Config{RootCAs: a.Pool(), Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}, err
	}
}
