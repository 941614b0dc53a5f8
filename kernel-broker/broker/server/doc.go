// SPDX-License-Identifier: Apache-2.0

// Package server is the broker's face: it serves the API of proto/ over gRPC and
// holds everything that is about a call and not about kernels.
//
// Who calls is found out in one place (peer.go), who may call what stands in
// one table (access.go), and errors of the domain become status codes in one
// function (status.go). So a service's methods are short: convert, ask the
// domain, convert back, and return plain domain errors.
//
// Local callers come through a unix socket and are known by their uid, which
// the kernel vouches for. Callers over TCP come through TLS (tls.go): nodes are
// known by their certificates and speak for themselves only (claim.go), users by
// what they prove with each call (identity.go).
package server
