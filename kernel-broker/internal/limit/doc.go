// SPDX-License-Identifier: Apache-2.0

// Package limit counts what callers take: how often (Rates), and how much of it
// at a time (Places). It knows nothing of calls or connections; who is who is
// the caller's business, as a text.
//
// Neither grows with the number of those who come: what is kept of each is
// forgotten when it says no more than nothing would.
package limit
