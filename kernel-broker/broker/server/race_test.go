// SPDX-License-Identifier: Apache-2.0

//go:build race

package server_test

// flood is how many connections a load opens. The race detector has room for
// 8,128 goroutines, and a connection takes three: `make test-unit` runs these
// tests without it.
const flood = 2_000
