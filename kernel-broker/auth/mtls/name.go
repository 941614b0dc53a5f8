// SPDX-License-Identifier: Apache-2.0

package mtls

import (
	"crypto/x509"
	"fmt"
	"net/url"
	"strings"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// Role is what a certificate's owner may act as.
type Role string

// The roles.
const (
	Node   Role = "node"
	Broker Role = "broker"
)

// scheme of the URI in a certificate.
const scheme = "kernel-broker"

// maxCluster is Slurm's limit for a cluster's name.
const maxCluster = 40

// Name is who a certificate stands for. The zero value is nobody.
type Name struct {
	Cluster string
	Role    Role
	Name    string
}

// IsZero says that it is nobody's.
func (n Name) IsZero() bool { return n == Name{} }

// String is the name as the URI in a certificate has it.
func (n Name) String() string {
	return scheme + "://" + n.Cluster + "/" + string(n.Role) + "/" + n.Name
}

// URI of a certificate for this name.
func (n Name) URI() (*url.URL, error) {
	if err := n.Validate(); err != nil {
		return nil, err
	}
	return url.Parse(n.String())
}

// Validate refuses what cannot stand in a certificate.
func (n Name) Validate() error {
	if err := ValidateCluster(n.Cluster); err != nil {
		return err
	}
	if n.Role != Node && n.Role != Broker {
		return fmt.Errorf("role %q is neither %s nor %s: %w", n.Role, Node, Broker, kb.ErrInvalid)
	}
	return kb.ValidateNodeName(n.Name)
}

// ValidateCluster accepts the names that a cluster may have where certificates
// are used: lower-case letters, digits, dash and underscore, beginning with a
// letter or digit.
func ValidateCluster(name string) error {
	if name == "" || len(name) > maxCluster {
		return fmt.Errorf("cluster name %q has a wrong length: %w", name, kb.ErrInvalid)
	}
	for i := range len(name) {
		c := name[i]
		alnum := c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		if !alnum && (i == 0 || c != '-' && c != '_') {
			return fmt.Errorf("cluster name %q: character %q cannot stand in a certificate: %w", name, c, kb.ErrInvalid)
		}
	}
	return nil
}

// ParseName reads a name as String writes it, and nothing that only looks like
// one.
func ParseName(text string) (Name, error) {
	parts := strings.Split(strings.TrimPrefix(text, scheme+"://"), "/")
	if len(parts) == 3 {
		n := Name{Cluster: parts[0], Role: Role(parts[1]), Name: parts[2]}
		if n.Validate() == nil && n.String() == text {
			return n, nil
		}
	}
	return Name{}, fmt.Errorf("name %q is not %s://CLUSTER/ROLE/NAME: %w", text, scheme, kb.ErrInvalid)
}

// NameOf reads who a certificate stands for. One that stands for two is for
// nobody; URIs of other kinds are somebody else's business.
func NameOf(certificate *x509.Certificate) (Name, error) {
	var found []Name
	for _, uri := range certificate.URIs {
		if uri.Scheme != scheme {
			continue
		}
		n, err := ParseName(uri.String())
		if err != nil {
			return Name{}, err
		}
		found = append(found, n)
	}
	if len(found) != 1 {
		return Name{}, fmt.Errorf("certificate with the serial number %x has %d names of the form %s://CLUSTER/ROLE/NAME, one is wanted: %w",
			certificate.SerialNumber, len(found), scheme, kb.ErrUnauthenticated)
	}
	return found[0], nil
}
