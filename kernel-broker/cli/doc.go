// SPDX-License-Identifier: Apache-2.0

// Package cli is kernelctl: what people see of the broker.
//
// Commands are a noun and a verb. Results go to stdout and everything else to
// stderr, so that output can be piped; --output json and yaml print the
// messages of the API with its field names, and are the form to build on. The
// exit code tells a refusal from a broker that is away, which is what scripts
// and the SPANK plugin need to know.
package cli
