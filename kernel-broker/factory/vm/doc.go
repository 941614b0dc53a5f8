// SPDX-License-Identifier: Apache-2.0

// Package vm runs one guest: a kernel, a small root file system in memory and
// a script. It hands back the script's exit code, what the guest printed and
// the files that the script left below /out.
//
// The guest needs little of its kernel, since kernels that were slimmed to the
// bone have to run too: an initramfs, devtmpfs and the 8250 serial driver. The
// first serial port is the console; the result comes over the second one as a
// compressed tar, because a serial port is there on every kernel, is
// synchronous, and so does not disturb a run that has to repeat exactly.
//
// A kernel that panics, hangs or resets is an expected outcome here and has an
// error type of its own, BootError.
package vm
