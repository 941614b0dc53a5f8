// SPDX-License-Identifier: Apache-2.0

// Package authcost measures what it adds to a call to know who makes it, judge
// that and record it: the benchmark of kernel-broker/rpc, in which the same calls
// go to a broker without all that, in rounds that take turns.
package authcost
