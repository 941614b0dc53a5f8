// SPDX-License-Identifier: Apache-2.0

// Package catalog is what users can choose from: profiles, and the kernels
// behind them.
//
// It has two halves. The first reads what people write: strict YAML profiles,
// and the manifest of a kernel that was built (Load, Resolve). The second is
// the state that the broker keeps in its store (Catalog): which versions are
// registered, how often each failed to boot, which are quarantined.
//
// A version never changes once it is registered: a job that asked for
// mitgcm@3 yesterday gets the same bytes tomorrow. So Apply only adds, and
// refuses other content under an old number. The rest (description, default
// version, policies) may change at any time.
//
// Between the two and the submit hosts stands the snapshot, a small text file
// in which a plugin can look names up without a network.
package catalog
