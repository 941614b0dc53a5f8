// SPDX-License-Identifier: Apache-2.0

// Package cli is kernelctl, the users' and administrators' view of the broker.
//
// Commands are a noun and a verb. Results go to stdout and everything else to stderr, so that output can be piped;
// --output json and yaml print the API's messages with its field names, for programs. The exit code distinguishes a
// refusal from an unreachable broker, for scripts and the SPANK plugin.
package cli
