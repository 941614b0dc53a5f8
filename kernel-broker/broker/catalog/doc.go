// SPDX-License-Identifier: Apache-2.0

// Package catalog holds what users can choose: profiles and their kernels.
//
// It has two halves. The first reads files: strict YAML profiles and the manifest of a built kernel (Load, Resolve). The
// second is the state in the broker's store (Catalog): the registered versions, their boot failures and quarantines.
//
// A registered version never changes: mitgcm@3 has the same bytes tomorrow as yesterday. So Apply only adds versions and
// rejects other content under an old number. The rest (description, default version, policies) may change at any time.
//
// The snapshot connects the catalog to the submit hosts: a small text file in which a plugin looks names up without a
// network.
package catalog
