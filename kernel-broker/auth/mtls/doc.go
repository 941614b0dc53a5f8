// SPDX-License-Identifier: Apache-2.0

// Package mtls is how nodes and brokers prove to each other who they are: what
// a certificate says of its owner, where a key and its certificate are kept,
// and the TLS settings of both ends that follow from it.
//
// The idea is that a certificate stands for one role in one cluster. It says so
// in a URI, kernel-broker://CLUSTER/node/NAME or /broker/NAME, and nothing else
// in it is believed: neither its common name nor the address that its owner
// dials from. Whoever signs certificates, the broker's own authority (package
// ca) or the site's, has to put that URI in.
//
// Both ends read key, certificate and authorities again when the files change,
// at the next handshake: nothing has to be restarted for a new certificate.
package mtls
