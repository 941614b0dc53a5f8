// SPDX-License-Identifier: Apache-2.0

//go:build !race

package server_test

// flood is how many connections a load opens.
const flood = 10_000
