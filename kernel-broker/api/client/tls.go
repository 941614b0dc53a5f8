// SPDX-License-Identifier: Apache-2.0

package client

import (
	"strings"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/mtls"
)

// Trust is how the broker authenticates over the network. Callers have no certificates.
type Trust struct {
	// CA is the file of the authorities to believe; empty: no TLS.
	CA string `yaml:"ca"`
	// Cluster of the broker; empty: any.
	Cluster string `yaml:"cluster"`
}

// transport returns the security of a connection. The local socket needs none: the kernel and the permissions of its
// folder identify both ends.
func (t Trust) transport(target string) credentials.TransportCredentials {
	if t.CA == "" || strings.HasPrefix(target, "unix:") {
		return insecure.NewCredentials()
	}
	return credentials.NewTLS(mtls.ClientConfig(mtls.NewFiles(mtls.Paths{Authorities: t.CA}), t.Cluster))
}
