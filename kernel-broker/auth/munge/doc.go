// SPDX-License-Identifier: Apache-2.0

// Package munge asks munged, the daemon by which Slurm's own users prove who
// they are: Encode has it vouch for the caller's uid and a few bytes, Decode
// has it judge what somebody else brings.
//
// There is no well-kept Go library for it, and libmunge would need cgo. So
// this package speaks to munged's socket itself: one request and one answer on
// one connection, in a format that has had the same version for well over a
// decade and carries that version in each message. Another version is an
// error, never a guess. Cryptography, keys and clocks all stay munged's.
//
// A decode is never sent twice. munged lets a client that says "this is a
// retry" have a replayed credential, which would take its replay check away.
package munge
