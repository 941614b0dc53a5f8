// SPDX-License-Identifier: Apache-2.0

// Package pki decides who may speak as which node: the broker's own authority,
// which signs certificates, and the records of whom it signed them for.
//
// The idea is that a certificate can only come from a token that an
// administrator made for one node, or from a certificate that the node has
// already. Both are decided on one record per node in the store, and each
// change of it is fenced by its revision: of two who come with the same token
// only one finds it unused, and a broker that is killed in between has either
// recorded the use or not handed anything out.
//
// Whom the authority has signed for it can void again. Roster knows which
// certificates are void; it works with a site's authority as well, whose keys
// this broker does not have.
package pki
