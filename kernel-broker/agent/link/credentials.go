// SPDX-License-Identifier: Apache-2.0

package link

import (
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/mtls"
)

// transportCredentials is the one place that says how the agent and the broker
// prove to each other who they are. A new certificate is shown from the next
// connection on; the broker ends one no later than the certificate it began with.
func transportCredentials(own mtls.Source) credentials.TransportCredentials {
	if own == nil {
		return insecure.NewCredentials()
	}
	return credentials.NewTLS(mtls.ClientConfig(own, ""))
}
