// SPDX-License-Identifier: Apache-2.0

// Package anybroker has gRPC connect to the first of several addresses at which a broker answers. Of the brokers of a
// cluster one acts, and only that one listens.
package anybroker

import (
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
)

// Split returns the addresses of a list with commas, at least one.
func Split(list string) []string {
	addresses := strings.Split(list, ",")
	for i := range addresses {
		addresses[i] = strings.TrimSpace(addresses[i])
	}
	return addresses
}

// scheme of the targets.
const scheme = "brokers"

// Target returns what grpc.NewClient dials the addresses by: in their order, each a quarter of a second after the one
// before or once that has failed, until one answers. A name is resolved at each try.
func Target(addresses []string) (target string, options []grpc.DialOption) {
	endpoints := make([]resolver.Endpoint, len(addresses))
	for i, address := range addresses {
		endpoints[i] = resolver.Endpoint{Addresses: []resolver.Address{{Addr: address}}}
	}
	list := manual.NewBuilderWithScheme(scheme)
	list.InitialState(resolver.State{Endpoints: endpoints})
	// The name of the list is no host: certificates name the broker's cluster, and not its host.
	return scheme + ":///" + scheme, []grpc.DialOption{grpc.WithResolvers(list)}
}
