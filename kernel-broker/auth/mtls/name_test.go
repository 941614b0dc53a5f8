// SPDX-License-Identifier: Apache-2.0

package mtls

import (
	"crypto/x509"
	"errors"
	"math/big"
	"net/url"
	"strings"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

func TestNames(t *testing.T) {
	for _, n := range []Name{{"lab", Node, "n1"}, {"a-b_1", Broker, "ctl.example.org"}} {
		got, err := ParseName(n.String())
		if err != nil || got != n {
			t.Errorf("%v became %v, %v", n, got, err)
		}
	}
	for _, text := range []string{
		"", "kernel-broker://", "kernel-broker://lab", "kernel-broker://lab/node", "kernel-broker://lab/node/", "kernel-broker://lab//n1",
		"kernel-broker://lab/node/n1/", "kernel-broker://lab/node/n1?x", "kernel-broker://lab/node/n1#x", "kernel-broker://lab/node/n%31",
		"kernel-broker://u@lab/node/n1", "kernel-broker://lab:1/node/n1", "kernel-broker://Lab/node/n1", "kernel-broker://lab/Node/n1",
		"kernel-broker://lab/root/n1", "kernel-broker://lab/node/../broker/x", "lab/node/n1", "spiffe://lab/node/n1",
		"kernel-broker://lab/node/n1 ", "kernel-broker://" + strings.Repeat("a", 41) + "/node/n1",
	} {
		if n, err := ParseName(text); !errors.Is(err, kb.ErrInvalid) {
			t.Errorf("%q became %v, %v", text, n, err)
		}
	}
}

func TestNameOf(t *testing.T) {
	for _, c := range []struct {
		uris []string
		want string
		err  error
	}{
		{[]string{"kernel-broker://lab/node/n1"}, "n1", nil},
		{[]string{"spiffe://x/y", "kernel-broker://lab/node/n1", "https://n2"}, "n1", nil},
		{nil, "", kb.ErrUnauthenticated},
		{[]string{"spiffe://lab/node/n1"}, "", kb.ErrUnauthenticated},
		{[]string{"kernel-broker://lab/node/n1", "kernel-broker://lab/node/n2"}, "", kb.ErrUnauthenticated},
		{[]string{"kernel-broker://lab/node/n1", "kernel-broker://lab/node/n1"}, "", kb.ErrUnauthenticated},
		{[]string{"kernel-broker://lab/node/n1", "kernel-broker://lab/x"}, "", kb.ErrInvalid},
		{[]string{"kernel-broker:lab/node/n1"}, "", kb.ErrInvalid},
	} {
		certificate := &x509.Certificate{SerialNumber: big.NewInt(1)}
		// A common name or a host name makes nobody a node.
		certificate.Subject.CommonName, certificate.DNSNames = "n9", []string{"n9"}
		for _, text := range c.uris {
			u, err := url.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			certificate.URIs = append(certificate.URIs, u)
		}
		n, err := NameOf(certificate)
		if n.Name != c.want || !errors.Is(err, c.err) {
			t.Errorf("%q is %v, %v", c.uris, n, err)
		}
	}
}
